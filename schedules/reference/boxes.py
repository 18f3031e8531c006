"""Evaluate the boxes of an iteration space, on several threads if there is much work."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from .reads import IterationBox

MAX_BOX_POINTS = 1 << 18
"""Points evaluated at once: temporaries of two megabytes stay in a shared cache, and each NumPy
call is long enough for threads not to contend for the interpreter."""
PARALLEL_POINTS = 1 << 21
"""Points from which starting threads pays: some hundredths of a second of work."""
MOST_WORKERS = 8

T = TypeVar("T")


def over_boxes(
    work: Callable[[IterationBox], T], boxes: Sequence[IterationBox], *, disjoint: bool
) -> list[T]:
    """The results of `work` for each box, in order. Boxes that are `disjoint` write no common
    element and may run on several threads, since NumPy releases the interpreter lock.

    The threads have ended when this returns, so a caller may fork.
    """

    def quietly(box: IterationBox) -> T:
        with np.errstate(all="ignore"):  # NumPy's error state is per thread
            return work(box)

    workers = min(len(boxes), len(os.sched_getaffinity(0)), MOST_WORKERS)
    if not disjoint or workers < 2 or sum(b.points for b in boxes) < PARALLEL_POINTS:
        return [quietly(box) for box in boxes]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(quietly, boxes))
