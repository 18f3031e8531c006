"""Reading JSON that others wrote: nothing that is not a value of ours gets through."""

from __future__ import annotations

import json
from typing import Any


def loads_strictly(document: str) -> Any:
    """JSON data; ValueError also for NaN, infinities, doubled keys and absurd nesting."""
    try:
        return json.loads(
            document,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            object_pairs_hook=_unique,
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{digits} is out of range")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names one key twice")
    return found
