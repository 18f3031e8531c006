"""Traces as records hold them: JSON data, which can be passed on without reading its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REWRITES = frozenset({"AxisLast", "Beforehand", "OverTaps", "Share", "Winograd"})
"""The steps that change the expression, by name; they stand first."""


def has_rewrites(steps: Sequence[Any]) -> bool:
    """Whether a trace of these steps changes the expression."""
    return bool(steps) and isinstance(steps[0], dict) and steps[0].get("do") in REWRITES
