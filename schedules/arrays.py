"""Arrays over settings: the results of spaces, plans and models.

P is the number of settings.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
FloatArray: TypeAlias = npt.NDArray[np.float64]

Number: TypeAlias = npt.NDArray[Any] | float
Truth: TypeAlias = npt.NDArray[Any] | bool
"""Values of shape (P,), or one value for all P settings."""

MOST_CODES = 2**63 - 1
"""The largest value of an element of an IntArray."""


def distinct(values: npt.NDArray[np.int64]) -> IntArray:
    """Return the distinct values of an array, ascending.

    `np.unique` without indices imports `numpy.ma`, which takes 20 ms in each new process.
    """
    ordered = np.sort(values, axis=None)
    found: IntArray = ordered[np.diff(ordered, prepend=ordered[:1] - 1) != 0]
    return found


def distinct_rows(settings: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct rows of an array of shape (P, J), and the index of each row among them,
    shape (P,)."""
    settings = np.asarray(settings, np.int64)
    sizes = settings.max(axis=0, initial=0) + 1
    if not len(settings):
        return settings, np.empty(0, np.int64)
    if prod(sizes.tolist()) > MOST_CODES:
        rows, places = np.unique(settings, axis=0, return_inverse=True)
        return rows, places.reshape(-1)
    weights = [prod(sizes[j + 1 :].tolist()) for j in range(len(sizes))]
    codes = settings @ np.array(weights, np.int64)
    _, first, places = np.unique(codes, return_index=True, return_inverse=True)
    return settings[first], places.reshape(-1)


def map_unique(count: Callable[..., tuple[float, ...]], *values: Number) -> list[FloatArray]:
    """Return an array of shape (P,) for each number that `count` returns for `values`, or of shape
    (1,) if all values are scalars.

    `count` is called once per distinct row of values.
    """
    each = np.broadcast_arrays(*map(np.atleast_1d, values))
    distinct, places = distinct_rows(np.stack(each, axis=1))
    found = np.asarray([count(*row) for row in distinct.tolist()], np.float64)
    return list(found[places].T)
