"""The buffers of one workload: made and filled once, used by every candidate's child."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schedules.workload.tensors import Tensor

from ....arrays import Array, as_bytes
from ....judge.cases import Case
from .flat import FlatBuffers, flat_buffers
from .guarded import Flush, GuardedBuffer, GuardedPool

WORKSPACE_ALIGN_BYTES = 64


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


def _named(tensors: Sequence[Tensor], case: Case) -> list[tuple[Tensor, Array]]:
    return list(zip(tensors, case.inputs, strict=False))


def _guarded_input(tensor: Tensor, array: Array, flush: Flush, pool: GuardedPool) -> GuardedBuffer:
    buffer = pool.take(tensor.name, tensor.bytes, flush)
    buffer.view()[:] = as_bytes(array)
    buffer.protect(writable=False)
    return buffer
