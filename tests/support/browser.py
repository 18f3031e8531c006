"""What the tests say where there is no browser."""

from __future__ import annotations

NO_BROWSER = "browser tests did not run"
