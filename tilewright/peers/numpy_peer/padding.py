"""Padded copies in NumPy, for windows at the edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..variants import Call

Array = NDArray[Any]


def framed(
    image: Callable[[], Array], spans: Sequence[tuple[int, int]], outside: float = 0.0
) -> tuple[Call, Array]:
    """Return (call, array). `call` copies a box of `image()` to `array`, and elements of the box
    beyond the image are `outside`. `spans` has the least and greatest coordinate of the box in each
    of the last dimensions."""
    first = image()
    rank = len(spans)
    sizes = [hi - lo + 1 for lo, hi in spans]
    padded = np.full((*first.shape[: first.ndim - rank], *sizes), outside, first.dtype)
    inside, source = [], []
    for (lo, hi), n in zip(spans, first.shape[first.ndim - rank :], strict=True):
        begin, end = max(lo, 0), min(hi, n - 1)
        inside.append(slice(begin - lo, end - lo + 1))
        source.append(slice(begin, end + 1))
    target = at(padded, inside)
    return lambda: np.copyto(target, at(image(), source)), padded


def at(array: Array, places: Sequence[int | slice]) -> Array:
    """Index the last dimensions of `array` by `places`, and return the result (a view)."""
    index: Any = (..., *places)
    found: Array = array[index]
    return found
