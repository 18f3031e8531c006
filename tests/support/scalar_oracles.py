"""What scalar functions are, by the standard library and NumPy: no table of ours is asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0


def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


_NUMBERS: dict[str, Callable[[float], float]] = {
    "neg": lambda x: -x,
    "abs": abs,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sigmoid": _sigmoid,
    "floor": lambda x: float(math.floor(x)),
    "round": lambda x: float(round(x)),
    "softplus": _softplus,
    "sign": lambda x: float((x > 0) - (x < 0)),
}
_ARRAYS: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softplus": lambda x: np.logaddexp(np.zeros_like(x), x),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}


def of_number(name: str) -> Callable[[float], float]:
    """The function of one float; it raises ValueError or OverflowError where it has no value."""
    found: Callable[[float], float] = _NUMBERS.get(name) or getattr(math, name)
    return found


def of_array(name: str) -> Callable[[Array], Array] | None:
    """The function of an array, in its type; None where NumPy has none."""
    found: Callable[[Array], Array] | None = _ARRAYS.get(name) or getattr(np, name, None)
    return found
