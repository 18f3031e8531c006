"""Calls that use OpenMP itself and buffers without guard pages: for timing, repeated calls and
concurrent callers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from ....arrays import as_array, as_bytes
from ..loading.concurrent_calls import call_beside
from ..loading.entries import Entry, argument_vector
from ..loading.native import Helpers
from ..memory.arena import WORKSPACE_ALIGN_BYTES, Arena
from ..memory.fills import numbers
from ..memory.flat import FlatBuffers, flat_buffers
from ..memory.guarded import Flush, GuardedBuffer, GuardedPool
from .guarded_run import Checks, compare, same
from .job import CheckJob

_WARM_SECS = 2e-3
_SLOW_WARM_SECS = 5e-3  # one call of a kernel that is slower is long enough for a precise time


def call_together(
    checks: Checks,
    flat: FlatRun,
    helpers: Helpers,
    expected: Sequence[NDArray[np.uint8]],
    *,
    parallel: bool,
) -> None:
    """Raise WrongError if one of two concurrent callers with different inputs gets a wrong result.

    The results of a single call on the same inputs are the right ones.
    """
    arena, pool = checks.arena, checks.pool
    # also skipped before the buffers, so that buffers of misaligned runs are reused
    align = WORKSPACE_ALIGN_BYTES
    buffers = [pool.acquire(t.name, t.bytes, Flush.LEFT, align, align) for t in arena.tensors]
    for buffer, tensor, array in zip(buffers, arena.inputs, arena.case.inputs, strict=False):
        as_array(tensor, buffer.view()).reshape(-1)[:] = array.reshape(-1)[::-1]
    other = FlatRun(arena, flat.entry, _side_by_side(buffers), _scratch_of(flat.entry))
    other.run()
    alone = []
    for tensor, output in zip(arena.outputs, other.outputs(), strict=True):
        buffers.append(pool.acquire(tensor.name, tensor.bytes, Flush.LEFT, align, align))
        alone.append(buffers[-1].view())
        alone[-1][:] = output
    flat.call_beside(other, helpers, lambda: flat.compare(expected))
    # OpenMP may give two concurrent teams fewer threads, which changes the rounding.
    if arena.case.exact or not parallel:
        other.call_beside(flat, helpers, lambda: other.compare_bits(alone))
    for buffer in buffers:
        pool.release(buffer)


def flat_run(job: CheckJob, checks: Checks, entry: Entry) -> FlatRun:
    """Return the arguments for calls of an entry that use OpenMP itself.

    If the job is timed, they are flat buffers with the inputs. Otherwise they are the guarded
    buffers.
    """
    arena = checks.arena
    if entry.address not in checks.flat_scratch:
        checks.flat_scratch[entry.address] = _scratch_of(entry)
    scratch = checks.flat_scratch[entry.address]
    if job.timed or arena.flat_is_filled:
        if not arena.flat_is_filled:
            for i, array in enumerate(arena.case.inputs):
                arena.flat.view(i)[:] = as_bytes(array)
        return FlatRun(arena, entry, arena.flat, scratch)
    outputs = [
        checks.pool.acquire(t.name, t.bytes, Flush.LEFT, WORKSPACE_ALIGN_BYTES)
        for t in arena.outputs
    ]
    buffers = _side_by_side([*arena.guarded_inputs[Flush.LEFT], *outputs])
    return FlatRun(arena, entry, buffers, scratch, outputs)


def _scratch_of(entry: Entry) -> FlatBuffers:
    """Return workspace and packed memory for calls of `entry`, one call at a time."""
    return flat_buffers([entry.workspace_bytes, entry.packed_bytes], skip_bytes=2048)


def _side_by_side(buffers: Sequence[GuardedBuffer]) -> FlatBuffers:
    return FlatBuffers(tuple(b.address for b in buffers), tuple(b.size_bytes for b in buffers))


class FlatRun:
    """An entry that is called with OpenMP itself, and its arguments.

    `scratch` has the workspace and the packed memory. The constant inputs are packed once.
    Concurrent calls must not share `scratch`.
    """

    def __init__(
        self,
        arena: Arena,
        entry: Entry,
        flat: FlatBuffers,
        scratch: FlatBuffers,
        buffers: Sequence[GuardedBuffer] = (),
    ) -> None:
        self._arena = arena
        self.entry = entry
        self._flat = flat
        self._buffers = buffers
        self._first_output = len(arena.case.inputs)
        self._workspace = scratch.view(0)
        workspace, packed = scratch.addresses
        self._turn = arena.turn or 0
        numbers(self._turn).into(scratch.view(1))
        entry.pack(self._flat.addresses, packed)
        self.pointers = entry.pointers(self._flat.addresses, packed, workspace)
        self.argv = argument_vector(self.pointers, len(arena.tensors) + 1)
        self.warm_secs = 0.0

    def free(self, pool: GuardedPool) -> None:
        for buffer in self._buffers:
            pool.release(buffer)

    def outputs(self) -> list[NDArray[np.uint8]]:
        flat = self._flat
        return [flat.view(i) for i in range(self._first_output, len(flat.addresses))]

    def poison(self) -> None:
        """Fill outputs and workspace with `numbers` that differ from the previous ones, so that no
        result of an earlier call remains."""
        self._turn += 1
        for view in (*self.outputs(), self._workspace):
            numbers(self._turn).into(view)

    def run(self) -> None:
        """Call the entry once."""
        self.entry.call(*self.pointers)

    def warm(self) -> None:
        """Call the entry on poisoned outputs, and set `warm_secs` to the time of the fastest call.

        A fast kernel is called two to four times, and the time of its first call is ignored.
        """
        self.poison()
        secs: list[float] = []
        while (
            not secs
            or (len(secs) == 1 and secs[0] < _SLOW_WARM_SECS)
            or (len(secs) < 4 and sum(secs) < _WARM_SECS)
        ):
            start = time.perf_counter()
            self.run()
            secs.append(time.perf_counter() - start)
        self.warm_secs = min(secs[1:] or secs)

    def call_beside(self, other: FlatRun, helpers: Helpers, check: Callable[[], None]) -> None:
        """Call the entry repeatedly while another thread calls it on the arguments of `other`.

        `check` is called between the calls of this thread.
        """
        self.poison()
        # The kernel is the same for both, and one time may be unknown.
        secs = max(self.warm_secs, other.warm_secs)
        call_beside(helpers, self.entry, other.argv, self.pointers, secs, check)

    def compare_bits(self, expected: Sequence[NDArray[np.uint8]]) -> None:
        """Raise WrongError if any output bit differs from `expected`, the outputs of a single
        call."""
        what = "is disturbed by a concurrent call"
        same(self._arena.outputs, expected, self.outputs(), what)

    def compare(self, expected: Sequence[NDArray[np.uint8]]) -> None:
        """Raise WrongError if the outputs disagree with `expected`, the outputs of the guarded
        run."""
        compare(self._arena, expected, self.outputs())
