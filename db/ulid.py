"""ULIDs: 26 characters that sort by the time they were made (github.com/ulid/spec)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_ulid(now: datetime, entropy: Callable[[int], bytes]) -> str:
    """48 bits of milliseconds since 1970, then 80 bits from `entropy(10)`, in base 32."""
    millis = int(now.timestamp() * 1000)
    number = (millis << 80) | int.from_bytes(entropy(10), "big")
    return "".join(_CROCKFORD[(number >> shift) & 31] for shift in range(125, -1, -5))
