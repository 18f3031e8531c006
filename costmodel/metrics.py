"""Ranking quality of cost models. Every measure takes predicted and measured costs, of which lower
ones are better.

`predicted` and `measured` are (n,) arrays of the same candidates. A measure is None if it is
undefined for the input (too few values, or all values equal).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vector = npt.ArrayLike


def ranks(values: Vector) -> npt.NDArray[np.float64]:
    """Return the ranks from 0, shape (n,). Equal values share the mean of their ranks."""
    array = np.asarray(values, np.float64)
    order = np.argsort(array, kind="stable")
    _, inverse, counts = np.unique(array[order], return_inverse=True, return_counts=True)
    starts = np.cumsum(counts) - counts
    result = np.empty(len(array))
    result[order] = (starts + (counts - 1) / 2.0)[inverse]
    return result


def spearman(predicted: Vector, measured: Vector) -> float | None:
    """Return the rank correlation in -1..1, or None if there are fewer than 3 values or all values
    are equal.

    Source: Spearman (1904), as Pearson's correlation of `ranks`.
    """
    x, y = ranks(predicted), ranks(measured)
    x, y = x - x.mean() if len(x) else x, y - y.mean() if len(y) else y
    scale = float(np.sqrt((x @ x) * (y @ y)))
    if len(x) <= 2 or scale == 0.0:
        return None
    return float(x @ y) / scale


def recall_at_k(predicted: Vector, measured: Vector, k: int) -> float | None:
    """Return the share of the k fastest candidates that are among the k candidates predicted to be
    fastest.

    Return None if there are fewer than 2 k values: any model would then score well.
    """
    x, y = np.asarray(predicted, np.float64), np.asarray(measured, np.float64)
    if len(x) < 2 * k:
        return None
    chosen = set(np.argsort(x, kind="stable")[:k].tolist())
    return len(chosen & set(np.argsort(y, kind="stable")[:k].tolist())) / k
