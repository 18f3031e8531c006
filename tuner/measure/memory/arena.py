"""The buffers of one workload: made and filled once, used by every candidate's child."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from schedules.workload.tensors import Tensor

from ...process import linux
from .guarded import Flush, GuardedBuffer, GuardedPool, view_bytes

# Arrays that begin at the same offset in a page compete for the same cache sets, and loads wait
# for stores 4096 bytes away: 17 cache lines between one array and the next avoid both.
_STAGGER_BYTES = 17 * 64
_HUGE_PAGE_BYTES = 2 << 20
WORKSPACE_ALIGN_BYTES = 64

Array = NDArray[Any]


class Case(Protocol):
    """Inputs with a known answer; `compare.Case` is one.

    `exact` says that only one result is right, bit for bit.
    """

    @property
    def inputs(self) -> tuple[Array, ...]: ...

    @property
    def exact(self) -> bool: ...

    def check(self, outputs: Sequence[Array]) -> str | None:
        """What is wrong with arrays in the order of the outputs, None if nothing."""
        ...

    def error(self, outputs: Sequence[Array]) -> float | None:
        """The largest error relative to what the case names, None if it names nothing."""
        ...


@dataclass(frozen=True, slots=True)
class FlatBuffers:
    """Unguarded buffers for timing, in argument order, in one huge-page-backed block."""

    addresses: tuple[int, ...]
    size_bytes: tuple[int, ...]

    def view(self, index: int) -> NDArray[np.uint8]:
        """The bytes of buffer `index`."""
        return view_bytes(self.addresses[index], self.size_bytes[index])


@dataclass(frozen=True, slots=True)
class Arena:
    """A case laid out in memory: guarded read-only inputs in both placements, flat ones to time.

    Flat outputs are reserved here and touched first by the child that times, as its own copy.
    Unless `flat_is_filled`, the flat inputs hold another case's values.
    """

    tensors: tuple[Tensor, ...]
    case: Case
    guarded_inputs: dict[Flush, tuple[GuardedBuffer, ...]]
    flat: FlatBuffers
    flat_is_filled: bool = True

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(t.bytes for t in self.tensors)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.tensors[: len(self.case.inputs)]

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return self.tensors[len(self.case.inputs) :]


def build_arena(
    tensors: Sequence[Tensor],
    case: Case,
    flat: FlatBuffers | None = None,
    pool: GuardedPool | None = None,
) -> Arena:
    """Lay out `case`; `tensors` are the arguments of a call, inputs first.

    `flat` re-uses the timing buffers of another case of the same workload, as they are, and `pool`
    guarded inputs of such cases.
    """
    own = flat is None
    pool = GuardedPool() if pool is None else pool
    placed: dict[Flush, tuple[GuardedBuffer, ...]] = {}
    right = tuple(_guarded_input(t, a, Flush.RIGHT, pool) for t, a in _named(tensors, case))
    placed[Flush.RIGHT] = right
    # Whole pages touch both guards at once: no second copy.
    placed[Flush.LEFT] = tuple(
        r if r.size_bytes == r.pages_bytes else _guarded_input(t, a, Flush.LEFT, pool)
        for r, (t, a) in zip(right, _named(tensors, case), strict=True)
    )
    if flat is None:
        flat = flat_buffers([t.bytes for t in tensors])
        for i, array in enumerate(case.inputs):
            flat.view(i)[:] = as_bytes(array)
    return Arena(tuple(tensors), case, placed, flat, own)


def give_guarded(arena: Arena, pool: GuardedPool) -> None:
    """Leave the guarded inputs of an arena that is not used again to others."""
    for buffer in {b.start: b for group in arena.guarded_inputs.values() for b in group}.values():
        pool.give(buffer)


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


def as_bytes(array: Array) -> NDArray[np.uint8]:
    """The elements of an array, row-major, as bytes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def as_array(tensor: Tensor, stored: NDArray[np.uint8]) -> Array:
    """Stored bytes as the array of `tensor`: its shape and NumPy type, no copy."""
    return stored.view(tensor.dtype.numpy).reshape(tensor.shape)


def _named(tensors: Sequence[Tensor], case: Case) -> list[tuple[Tensor, Array]]:
    return list(zip(tensors, case.inputs, strict=False))


def _guarded_input(tensor: Tensor, array: Array, flush: Flush, pool: GuardedPool) -> GuardedBuffer:
    buffer = pool.take(tensor.name, tensor.bytes, flush)
    buffer.view()[:] = as_bytes(array)
    buffer.protect(writable=False)
    return buffer
