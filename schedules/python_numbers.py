"""Numbers that callers give: Python's, and NumPy's scalars, which count as Python's."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TypeVar

T = TypeVar("T")
"""The type of a number as its caller declares it."""


def as_number(value: T) -> T:
    """Return the Python number of a NumPy scalar, and any other value as it is. Like `np.float64`,
    which is a Python float, every scalar takes the type of the other operand.

    NumPy registers its scalars as numbers, so that this module need not import it. A number that is
    too large for a float is no number here.
    """
    if isinstance(value, int | float):
        return value
    if isinstance(value, Integral):
        return int(value)  # type: ignore[return-value]
    if not isinstance(value, Real):
        return value
    try:
        return float(value)  # type: ignore[return-value]
    except OverflowError:
        return value


def as_whole_number(value: object) -> int | None:
    """Return the Python integer of an integer or of a NumPy integer, or None for anything else.
    Bools are no integers here."""
    found = as_number(value)
    return found if isinstance(found, int) and not isinstance(found, bool) else None
