"""Guarded runs: calls on poisoned buffers between guard pages, and checks of the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.record import MeasureStatus
from tilewright.schedules.workload.tensors import Tensor

from ....arrays import as_array, as_bytes
from ....process.frames import Frame
from ..loading.entries import Entry
from ..loading.store_watch import StoreWatch
from ..memory.arena import WORKSPACE_ALIGN_BYTES, Arena
from ..memory.fills import constant, numbers
from ..memory.flat import FlatBuffers
from ..memory.guarded import LINE_BYTES, Flush, GuardedBuffer, GuardedPool, same_bytes
from ..memory.line_offsets import line_offsets
from . import races

# Fills of outputs and workspace. If buffers end at a guard page, every byte is 0xFF, which is NaN
# in each float type. Other runs use finite numbers, because a maximum or a select would hide a NaN:
# large numbers in the quick case, numbers of every magnitude in later cases.
_NAN_FILL, _INT_FILL, _LARGE_FILL = constant(0xFF), constant(0xAA), constant(0x55)


@dataclass(frozen=True)
class Checks:
    """The common state of a child's guarded runs."""

    arena: Arena
    openmp: races.SerialOpenMP
    note: Callable[[Frame], None]
    """Stores the addresses of a run's buffers, used to explain a fault."""
    pool: GuardedPool
    flat_scratch: dict[int, FlatBuffers] = field(default_factory=dict)
    """The memory of the `FlatRun` of each entry, by the entry's address."""
    turn: int = 0
    """The number of the case. It selects the `numbers` in unwritten memory."""
    stores: StoreWatch | None = None
    """Observes single stores. It is None if the machine does not support that."""


class WrongError(Exception):
    """The kernel is wrong. The text is one line that is shown to the user."""

    def __init__(self, status: MeasureStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Guarded:
    """The buffers of one guarded run: the inputs of the arena, and new outputs, workspace and
    packed memory. The OpenMP stand-in `checks.openmp` makes the calls, on its stacks.

    Each buffer is adjacent to a guard page, with two exceptions. If the arena has a `turn`, tensors
    with `Flush.LEFT` begin at the `line_offsets` of that turn. If the argument `turn` is given, all
    tensors begin at the offsets of `turn`, inputs are copied, and unwritten memory contains the
    `numbers` of `turn`.
    """

    def __init__(self, checks: Checks, entry: Entry, flush: Flush, turn: int | None = None) -> None:
        arena, self._pool = checks.arena, checks.pool
        self.entry = entry
        self._openmp = openmp = checks.openmp
        self.inputs: Sequence[GuardedBuffer] = arena.guarded_inputs[flush]
        self._copies: list[GuardedBuffer] = []
        at: Sequence[int | None] = arena.places_of(flush)
        if turn is not None:
            at = line_offsets(arena.tensors, turn)
            self.inputs = self._copies = [
                self._pool.take_at(t, flush, place)
                for t, place in zip(arena.inputs, at, strict=False)
            ]
            for buffer, array in zip(self.inputs, arena.case.inputs, strict=True):
                buffer.view()[:] = as_bytes(array)
                buffer.protect(writable=False)
        self.outputs = [
            self._pool.take_at(t, flush, place)
            for t, place in zip(arena.outputs, at[len(arena.inputs) :], strict=True)
        ]
        not_a_number = flush is Flush.RIGHT and turn is None
        some = _LARGE_FILL
        if checks.turn or turn is not None:
            some = numbers(checks.turn if turn is None else turn)
        for tensor, buffer in zip(arena.outputs, self.outputs, strict=True):
            fill = _NAN_FILL if tensor.dtype.is_float else _INT_FILL
            (fill if not_a_number else some).into(buffer.view())
        sizes = {"the workspace": entry.workspace_bytes}
        if entry.prepack is not None:
            sizes["packed memory"] = entry.packed_bytes
        take = self._pool.acquire
        scratch = [take(n, size, flush, WORKSPACE_ALIGN_BYTES) for n, size in sizes.items()]
        openmp.fill = _NAN_FILL if not_a_number else some
        for buffer in scratch:
            openmp.fill.into(buffer.view())
        self.workspace, self.packed = scratch[0], scratch[-1]
        self.writable: list[GuardedBuffer] = [*self.outputs, *scratch]
        for buffer in self.writable:
            buffer.set_canary()

    def run(self, *, seal: bool = False) -> int:
        """Pack if the entry is prepacked, then call it. Return the first non-zero status, or 0.

        If `seal`, packed memory is read-only during the call, so that a write to it faults.
        """
        code = self.pack()
        if code:
            return code
        if seal and self.entry.prepack is not None:
            self.packed.protect(writable=False)
        return self.compute()

    def pack(self) -> int:
        """Pack constant inputs if the entry is prepacked. Return the status, or 0 without
        packing."""
        entry = self.entry
        if entry.prepack is None:
            return 0
        pointers = entry.packing_pointers(self._arguments, self.packed.address)
        return self._openmp.call(entry.prepack_address, pointers)

    def compute(self) -> int:
        """Call the entry without packing, and return the status."""
        return self._openmp.call(self.entry.address, self._pointers)

    def call_again(self) -> int:
        """Call the entry again without refilling buffers or stacks, and return the status."""
        return self._openmp.call(self.entry.address, self._pointers, fresh=False)

    @property
    def _pointers(self) -> list[int]:
        packed, workspace = self.packed.address, self.workspace.address
        return self.entry.pointers(self._arguments, packed, workspace)

    @property
    def _arguments(self) -> list[int]:
        return [b.address for b in (*self.inputs, *self.outputs)]

    def frame(self) -> Frame:
        """Return a frame with the addresses of buffers and stacks, used to explain a fault."""
        buffers = [
            [b.name, b.address, b.size_bytes, b.start, b.pages_bytes, b.guard_bytes]
            for b in (*self.inputs, *self.writable)
        ]
        return Frame({"buffers": buffers, "stacks": self._openmp.stack_ranges})

    def free(self) -> None:
        for buffer in (*self.writable, *self._copies):
            self._pool.release(buffer)

    def lies_as(self, other: Guarded) -> bool:
        """Return whether each array has the same offset in its cache line as in `other`.

        Kernels may divide their work among threads by these offsets.
        """
        pairs = zip((*self.inputs, *self.outputs), (*other.inputs, *other.outputs), strict=True)
        return all((a.address - b.address) % LINE_BYTES == 0 for a, b in pairs)

    def results(self) -> list[NDArray[np.uint8]]:
        """Return the bytes of the outputs as views, not copies."""
        return [b.view() for b in self.outputs]


def guarded_run(
    checks: Checks,
    entry: Entry,
    flush: Flush,
    *,
    observer: races.Observer | None = None,
    turn: int | None = None,
) -> Guarded:
    """Call the entry once on poisoned, guarded memory. Return the buffers, which the caller frees.

    Raise WrongError if the call returns an error code or changes a canary.
    """
    buffers = Guarded(checks, entry, flush, turn)
    checks.note(buffers.frame())
    if observer is not None:
        observer.begin([(b.name, b.view()) for b in buffers.writable], checks.openmp)
    code = buffers.run(seal=True)
    if code:
        raise WrongError(MeasureStatus.WRONG_RESULT, f"the kernel returned error code {code}")
    for buffer in buffers.writable:
        broken = buffer.broken_canary()
        if broken:
            raise WrongError(MeasureStatus.OUT_OF_BOUNDS, f"wrote {broken}")
    return buffers


def check(arena: Arena, outputs: Sequence[NDArray[np.uint8]]) -> None:
    """Raise WrongError if the outputs differ from the expected outputs of the arena's case by more
    than the case permits."""
    problem = arena.case.check(arrays(arena, outputs))
    if problem is not None:
        raise WrongError(MeasureStatus.WRONG_RESULT, problem)


def arrays(arena: Arena, outputs: Sequence[NDArray[np.uint8]]) -> list[NDArray[Any]]:
    return [as_array(t, o) for t, o in zip(arena.outputs, outputs, strict=True)]


def same(
    tensors: Sequence[Tensor],
    first: Sequence[NDArray[np.uint8]],
    second: Sequence[NDArray[np.uint8]],
    what: str,
) -> None:
    """Raise WrongError if two runs differ in any bit. `what` ends the error text: "the kernel
    WHAT"."""
    for tensor, a, b in zip(tensors, first, second, strict=True):
        if not same_bytes(a, b):
            at = int((a != b).argmax()) // tensor.dtype.bytes
            index = tuple(int(i) for i in np.unravel_index(at, tensor.shape))
            values = as_array(tensor, a)[index], as_array(tensor, b)[index]
            raise WrongError(
                MeasureStatus.WRONG_RESULT,
                f"{tensor.name}{list(index)} is {values[0]} in one run and {values[1]} in "
                f"another: the kernel {what}",
            )


def compare(
    arena: Arena, expected: Sequence[NDArray[np.uint8]], outputs: Sequence[NDArray[np.uint8]]
) -> None:
    """Raise WrongError if `outputs` disagree with `expected`, the outputs of the guarded run.

    If the case is exact, all bits must be equal. Otherwise the error bounds of the case decide,
    because another team size may round differently.
    """
    if arena.case.exact:
        same(arena.outputs, expected, outputs, "is not the same each time it runs")
    elif not all(same_bytes(a, b) for a, b in zip(expected, outputs, strict=True)):
        check(arena, outputs)
