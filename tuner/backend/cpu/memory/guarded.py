"""Buffers between inaccessible guard pages. An access out of bounds faults immediately.

A buffer ends directly before a guard page (`RIGHT`) or begins directly after one (`LEFT`). The
bytes between its other end and the page boundary contain a canary value, which is compared after
the run. Verification uses both placements, so that an access beyond either end faults.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.workload.tensors import Tensor

from ....arrays import address_of
from ....process import linux

LINE_BYTES = 64
GUARD_BYTES = 1 << 30  # address space only; as large as the strides of large tensors
_CANARY = 0xC5
_HUGE_FROM_BYTES = 2 << 20  # smaller buffers contain no page of 2 MiB


class Flush(StrEnum):
    """The end of a buffer that is adjacent to a guard page."""

    RIGHT = "right"
    LEFT = "left"


@dataclass(frozen=True, slots=True)
class GuardedBuffer:
    """A buffer of `size_bytes` bytes at `address`, on dedicated pages between two guard areas."""

    name: str
    address: int
    size_bytes: int
    start: int
    """The address of the first accessible page."""
    pages_bytes: int
    """The size of the accessible pages."""
    guard_bytes: int
    """The size of each guard area."""

    def view(self) -> NDArray[np.uint8]:
        """Return the bytes of the buffer as a writable array that does not own its memory."""
        return view_bytes(self.address, self.size_bytes)

    def protect(self, *, writable: bool) -> None:
        access = linux.PROT_READ | (linux.PROT_WRITE if writable else 0)
        linux.protect(self.start, self.pages_bytes, access)

    def set_canary(self) -> None:
        for slack in self._slack():
            slack[:] = _CANARY

    def broken_canary(self) -> str | None:
        """Return a description of the bytes next to the buffer that changed since `set_canary`, or
        None."""
        before, after = self._slack()
        hit = np.flatnonzero(before != _CANARY)
        if hit.size:
            return f"{before.size - int(hit[0])} bytes before the start of {self.name}"
        hit = np.flatnonzero(after != _CANARY)
        if hit.size:
            return f"{int(hit[0])} bytes past the end of {self.name}"
        return None

    def describe(self, address: int) -> str | None:
        """Return a description of an access at `address` relative to this buffer, or None if it is
        elsewhere."""
        end = self.address + self.size_bytes
        if self.start - self.guard_bytes <= address < self.start:
            return f"{self.address - address} bytes before the start of {self.name}"
        if self.start <= address < self.start + self.pages_bytes:
            return f"a write to {self.name}, which is an input"
        if end <= address < self.start + self.pages_bytes + self.guard_bytes:
            return f"{address - end} bytes past the end of {self.name}"
        return None

    def free(self) -> None:
        linux.release(self.start - self.guard_bytes, self.pages_bytes + 2 * self.guard_bytes)

    def _slack(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        end = self.address + self.size_bytes
        return (
            view_bytes(self.start, self.address - self.start),
            view_bytes(end, self.start + self.pages_bytes - end),
        )


def guarded(
    name: str,
    size_bytes: int,
    flush: Flush,
    align_bytes: int = 1,
    guard_bytes: int = GUARD_BYTES,
    skip_bytes: int = 0,
    *,
    shared: bool = False,
) -> GuardedBuffer:
    """Return a new buffer.

    An alignment to `align_bytes` (a power of two up to a page) takes precedence over `flush`.
    `skip_bytes` bytes remain unused between the buffer and its guard. If `shared`, forked children
    share the pages. Otherwise they get copies.
    """
    pages_bytes = _pages_bytes(size_bytes + skip_bytes)
    start = linux.reserve(pages_bytes + 2 * guard_bytes, shared=shared) + guard_bytes
    linux.protect(start, pages_bytes, linux.PROT_READ | linux.PROT_WRITE)
    if pages_bytes >= _HUGE_FROM_BYTES:
        linux.prefer_huge_pages(start, pages_bytes)
    if not shared:
        linux.populate(start, pages_bytes)
    pages = GuardedBuffer(name, start, pages_bytes, start, pages_bytes, guard_bytes)
    return _placed(pages, name, size_bytes, flush, align_bytes, skip_bytes)


class GuardedPool:
    """A pool of guarded buffers, which are reused because a new page costs more than filling it.

    Forked children inherit the unused buffers only if `inherited`. `buffers` are the initial
    content of the pool.
    """

    def __init__(self, buffers: Iterable[GuardedBuffer] = (), *, inherited: bool = True) -> None:
        self._inherited = inherited
        self._free: dict[int, list[GuardedBuffer]] = {}
        for buffer in buffers:
            self.release(buffer)

    def acquire(
        self,
        name: str,
        size_bytes: int,
        flush: Flush,
        align_bytes: int = 1,
        skip_bytes: int = 0,
    ) -> GuardedBuffer:
        """Return a writable buffer, placed as by `guarded`. It contains zeros or the bytes of an
        earlier use."""
        free = self._free.get(_pages_bytes(size_bytes + skip_bytes), [])
        if not free:
            return guarded(name, size_bytes, flush, align_bytes, skip_bytes=skip_bytes)
        buffer = free.pop()
        if not self._inherited:
            linux.inherit(buffer.start, buffer.pages_bytes, inherited=True)
        buffer.protect(writable=True)
        return _placed(buffer, name, size_bytes, flush, align_bytes, skip_bytes)

    def take_at(self, tensor: Tensor, flush: Flush, place: int | None = None) -> GuardedBuffer:
        """Return a buffer for `tensor`.

        If `place` is None, the buffer is adjacent to a guard page. Otherwise it begins `place`
        bytes after the start of a cache line, less than a line from the guard page.
        """
        skip = place or 0
        if place is not None and flush is Flush.RIGHT:
            skip = -(tensor.bytes + place) % LINE_BYTES
        return self.acquire(tensor.name, tensor.bytes, flush, skip_bytes=skip)

    def release(self, buffer: GuardedBuffer) -> None:
        """Put `buffer` into the pool, so that a later `acquire` can reuse its pages."""
        if not self._inherited:
            linux.inherit(buffer.start, buffer.pages_bytes, inherited=False)
        self._free.setdefault(buffer.pages_bytes, []).append(buffer)

    def free(self) -> None:
        for buffers in self._free.values():
            for buffer in buffers:
                buffer.free()
        self._free.clear()


def _pages_bytes(size_bytes: int) -> int:
    return max(-(-size_bytes // linux.PAGE_BYTES), 1) * linux.PAGE_BYTES


def _placed(
    pages: GuardedBuffer,
    name: str,
    size_bytes: int,
    flush: Flush,
    align_bytes: int,
    skip_bytes: int,
) -> GuardedBuffer:
    """Return a buffer on the pages of another buffer."""
    last = (pages.pages_bytes - size_bytes - skip_bytes) // align_bytes * align_bytes
    offset = skip_bytes if flush is Flush.LEFT else last
    return replace(pages, name=name, address=pages.start + offset, size_bytes=size_bytes)


def view_bytes(address: int, size_bytes: int) -> NDArray[np.uint8]:
    """Return memory as a writable array that does not own it."""
    if not size_bytes:
        return np.empty(0, np.uint8)
    memory = (ctypes.c_uint8 * size_bytes).from_address(address)
    return np.ctypeslib.as_array(memory)


def same_bytes(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> bool:
    """Return whether two contiguous byte arrays are equal. This is several times as fast as NumPy's
    comparison."""
    if a.size != b.size:
        return False
    return int(linux.libc().memcmp(address_of(a), address_of(b), a.size)) == 0
