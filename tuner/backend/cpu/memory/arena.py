"""The buffers of one case. They are created and filled once, and the children of all candidates use
them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.schedules.workload.tensors import Tensor

from ....arrays import Array, as_bytes
from ....judge.cases import CheckCase
from ....process import linux
from .flat import FlatBuffers, flat_buffers
from .guarded import Flush, GuardedBuffer, GuardedPool
from .line_offsets import line_offsets

WORKSPACE_ALIGN_BYTES = 64


@dataclass(frozen=True, slots=True)
class Arena:
    """The tensors of a case in memory.

    Inputs have read-only guarded buffers for both values of `Flush`, and flat buffers for timing.
    An input that fills whole pages has one guarded buffer for both. The child that times the kernel
    writes the flat outputs first, so it has a private copy of them.
    """

    tensors: tuple[Tensor, ...]
    case: CheckCase
    guarded_inputs: dict[Flush, tuple[GuardedBuffer, ...]]
    flat: FlatBuffers
    flat_is_filled: bool = True
    """Whether the flat inputs have the values of this case. Otherwise they have the values of
    another case."""
    turn: int | None = None
    """If it is not None, tensors with `Flush.LEFT` begin at the `line_offsets` of this turn."""

    def places_of(self, flush: Flush) -> tuple[int | None, ...]:
        """Return the offset in a cache line for each tensor, or None for a tensor next to a guard
        page."""
        if self.turn is None or flush is Flush.RIGHT:
            return (None,) * len(self.tensors)
        return line_offsets(self.tensors, self.turn)

    @property
    def size_bytes(self) -> int:
        return sum(t.bytes for t in self.tensors)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.tensors[: len(self.case.inputs)]

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return self.tensors[len(self.case.inputs) :]


def build_arena(
    tensors: Sequence[Tensor],
    case: CheckCase,
    flat: FlatBuffers | None = None,
    pool: GuardedPool | None = None,
    turn: int | None = None,
) -> Arena:
    """Place `case` in memory. `tensors` are the arguments of a call, inputs first.

    `flat` is the flat memory of another arena. It is used without filling it. Guarded inputs are
    taken from `pool`. If `turn` is given, tensors with `Flush.LEFT` begin at the `line_offsets` of
    this turn.
    """
    own = flat is None
    pool = GuardedPool() if pool is None else pool
    count = len(case.inputs)
    at = (None,) * count if turn is None else line_offsets(tensors, turn)[:count]
    placed: dict[Flush, tuple[GuardedBuffer, ...]] = {Flush.RIGHT: (), Flush.LEFT: ()}
    for tensor, array, place in zip(tensors[:count], case.inputs, at, strict=True):
        one = _guarded_input(tensor, array, Flush.LEFT, place, pool)
        # A buffer of whole pages is adjacent to guard pages at both ends.
        whole = tensor.bytes % linux.PAGE_BYTES == 0 and tensor.bytes > 0
        other = one if whole else _guarded_input(tensor, array, Flush.RIGHT, None, pool)
        placed[Flush.LEFT] += (one,)
        placed[Flush.RIGHT] += (other,)
    if flat is None:
        flat = flat_buffers([t.bytes for t in tensors])
        for i, array in enumerate(case.inputs):
            flat.view(i)[:] = as_bytes(array)
    return Arena(tuple(tensors), case, placed, flat, own, turn)


def give_guarded(arena: Arena, pool: GuardedPool) -> None:
    """Return the guarded inputs of an arena to the pool."""
    for buffer in {b.start: b for group in arena.guarded_inputs.values() for b in group}.values():
        pool.release(buffer)


def _guarded_input(
    tensor: Tensor, array: Array, flush: Flush, place: int | None, pool: GuardedPool
) -> GuardedBuffer:
    buffer = pool.take_at(tensor, flush, place)
    buffer.view()[:] = as_bytes(array)
    buffer.protect(writable=False)
    return buffer
