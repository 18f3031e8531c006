"""Where the arrays of a race lie: the same for every side, and the same every time."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from benchmarks.peer_types import Array

PAGE_BYTES, HUGE_PAGE_BYTES = 4096, 2 << 20
STAGGER_BYTES = 17 * 64


class Shelf:
    """Makes arrays on huge pages, 64-byte aligned, each at another offset in its page.

    On small pages the kernel's choice of physical memory decides how many lines meet in a set of
    the second-level cache, which made the same code up to twice as slow in one process as in
    another. Arrays that all begin a page meet in the first level.
    """

    def __init__(self) -> None:
        self._count = 0

    def array(self, shape: Sequence[int], dtype: Any = np.float32) -> Array:
        """Zeros of `shape`, every page written."""
        kind = np.dtype(dtype)
        size = prod(shape) * kind.itemsize
        skip = self._count * STAGGER_BYTES % PAGE_BYTES
        self._count += 1
        # Python's own choice, shared memory, gets no huge pages on most systems.
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        memory = mmap.mmap(-1, size + skip + 2 * HUGE_PAGE_BYTES, flags=private)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            memory.madvise(mmap.MADV_HUGEPAGE)
        raw = np.frombuffer(memory, np.uint8)  # keeps `memory` alive, and so does every view
        start = -raw.ctypes.data % HUGE_PAGE_BYTES + skip
        array: Array = raw[start : start + size].view(kind).reshape(tuple(shape))
        array.fill(0)
        return array
