"""Canonical encoding of JSON values; every key in this project is a digest of such an encoding."""

from __future__ import annotations

import json
from typing import Any


def canonical_bytes(document: Any) -> bytes:
    """Return the canonical encoding of a JSON value: sorted keys, no spaces, UTF-8, no NaN."""
    text = json.dumps(
        document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()
