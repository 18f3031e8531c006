"""Memory for timing: huge pages, and different page offsets for all arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....process import linux
from .guarded import view_bytes

# Arrays that begin at the same offset in a page compete for the same cache sets, and loads wait
# for stores 4096 bytes away: 17 cache lines between one array and the next avoid both.
_STAGGER_BYTES = 17 * 64
_HUGE_PAGE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class FlatBuffers:
    """Unguarded buffers for timing, in argument order, in one huge-page-backed block."""

    addresses: tuple[int, ...]
    size_bytes: tuple[int, ...]

    def view(self, index: int) -> NDArray[np.uint8]:
        """The bytes of buffer `index`."""
        return view_bytes(self.addresses[index], self.size_bytes[index])


def flat_buffers(size_bytes: Sequence[int], skip_bytes: int = 0) -> FlatBuffers:
    """Staggered buffers of these sizes, zeros, 64-byte aligned, unmapped only with the process.

    `skip_bytes` shifts the first one, a multiple of 64.
    """
    page = linux.PAGE_BYTES
    offsets, at = [], 0
    for i, size in enumerate(size_bytes):
        at = -(-at // page) * page + (skip_bytes + i * _STAGGER_BYTES) % page
        offsets.append(at)
        at += size
    block = -(-max(at, 1) // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    start = linux.reserve(block + _HUGE_PAGE_BYTES)
    start = -(-start // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    linux.protect(start, block, linux.PROT_READ | linux.PROT_WRITE)
    linux.prefer_huge_pages(start, block)
    return FlatBuffers(tuple(start + o for o in offsets), tuple(size_bytes))
