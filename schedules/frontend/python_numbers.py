"""Numbers in expressions: Python's, and NumPy's scalars, which count as Python's."""

from __future__ import annotations

from numbers import Integral, Real


def as_number(value: object) -> object:
    """Return the Python number of a NumPy scalar, and any other value as it is. Like `np.float64`,
    which is a Python float, every scalar takes the type of the other operand.

    NumPy registers its scalars as numbers, so that this module need not import it.
    """
    if isinstance(value, int | float):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value
