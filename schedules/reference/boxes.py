"""Evaluate the boxes of an iteration space, on several threads if the boxes have enough points."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from .reads import IterationBox

MAX_BOX_POINTS = 1 << 18
"""Most points of a box. Temporaries of two megabytes fit a shared cache, and each NumPy call takes
long enough that threads do not contend for the interpreter lock."""
PARALLEL_POINTS = 1 << 18
"""Fewest points for which threads are started: a few milliseconds of work, a tenth of which they
cost."""
MOST_WORKERS = 8

T = TypeVar("T")


def over_boxes(
    work: Callable[[IterationBox], T], boxes: Sequence[IterationBox], *, disjoint: bool
) -> list[T]:
    """Return the result of `work` for each box, in the order of `boxes`.

    If `disjoint`, the boxes write no common element and are evaluated on several threads, since
    NumPy releases the interpreter lock. All threads end before the return, so a caller may fork.
    """

    def quietly(box: IterationBox) -> T:
        with np.errstate(all="ignore"):  # NumPy's error state is per thread
            return work(box)

    workers = min(len(boxes), len(os.sched_getaffinity(0)), MOST_WORKERS)
    if not disjoint or workers < 2 or sum(b.points for b in boxes) < PARALLEL_POINTS:
        return [quietly(box) for box in boxes]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(quietly, boxes))
