"""Work over the boxes of an iteration space, on several threads where it is long."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from .reads import IterationBox

MAX_BOX_POINTS = 1 << 18
"""Points evaluated at once: temporaries of two megabytes stay in a shared cache, and NumPy is busy
long enough in each for threads not to wait for one another."""
PARALLEL_POINTS = 1 << 21
"""Points from which threads are worth their start: some hundredths of a second of work."""
MOST_WORKERS = 8

T = TypeVar("T")


def over_boxes(
    work: Callable[[IterationBox], T], boxes: Sequence[IterationBox], *, apart: bool
) -> list[T]:
    """`work` of each box, in their order. Those `apart` write nothing in common and may run at
    the same time: NumPy lets others run while it computes.

    The threads have ended when this returns, so a caller may fork.
    """

    def quietly(box: IterationBox) -> T:
        with np.errstate(all="ignore"):  # which each thread has its own of
            return work(box)

    workers = min(len(boxes), len(os.sched_getaffinity(0)), MOST_WORKERS)
    if not apart or workers < 2 or sum(b.points for b in boxes) < PARALLEL_POINTS:
        return [quietly(box) for box in boxes]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(quietly, boxes))
