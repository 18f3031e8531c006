"""Memory for timing: huge pages, and a different page offset for each array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ....process import linux
from .guarded import view_bytes

# Arrays that begin at the same offset in a page compete for the same cache sets, and loads wait for
# stores that are 4096 bytes away. A shift of 17 cache lines from one array to the next avoids both.
_STAGGER_BYTES = 17 * 64
_HUGE_PAGE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class FlatBuffers:
    """Unguarded buffers for timing, in argument order, in one block of huge pages."""

    addresses: tuple[int, ...]
    size_bytes: tuple[int, ...]

    def view(self, index: int) -> NDArray[np.uint8]:
        """Return the bytes of buffer `index`."""
        return view_bytes(self.addresses[index], self.size_bytes[index])


def flat_buffers(size_bytes: Sequence[int], skip_bytes: int = 0) -> FlatBuffers:
    """Return zeroed buffers of these sizes at different page offsets, aligned to 64 bytes.

    The memory is unmapped when the process ends. `skip_bytes`, a multiple of 64, shifts the first
    buffer.
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
