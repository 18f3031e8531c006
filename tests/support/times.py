"""How many random cases tests try: `TIMES=7 python -m pytest FILE...` tries seven times as many."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("TIMES", "1"))
