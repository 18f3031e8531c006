"""Numbers in expressions: Python's, and NumPy's scalars, which count as Python's."""

from __future__ import annotations

import numpy as np


def as_number(value: object) -> object:
    """Return the Python number of a NumPy scalar, and any other value as it is. Like `np.float64`,
    which is a Python float, every scalar takes the type of the other operand."""
    if isinstance(value, np.integer):
        return int(value)
    return float(value) if isinstance(value, np.floating) else value
