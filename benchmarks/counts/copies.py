"""What in a lowered nest is a private copy, told from what is done with it.

A private buffer is one that stands for no tensor of the computation. It is

- *packed* where it holds elements of one other tensor, unchanged or zero: what is read from there
  instead. Filling it is no part of the computation: its bytes count, its loads and stores do not.
- *collected* where results are computed into it and copied out unchanged. They are stored and read
  back like others; the bytes count as well.

Others, such as partial sums that wait, are neither.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tilewright.schedules.algebra.scalar import Cast, Const, Load, Scalar, Select, loads
from tilewright.schedules.nest.loop_ir import Buffer, BufferScope, PrefetchHint, StoreElement

from .instances import Placed


@dataclass(frozen=True, slots=True)
class Copies:
    """Names of buffers: see the module; `blocks` are registers between memory and a packed copy."""

    packed: frozenset[str]
    collected: frozenset[str]
    blocks: frozenset[str]

    @property
    def buffers(self) -> frozenset[str]:
        return self.packed | self.collected

    def fills(self, place: Placed) -> bool:
        """Whether a leaf does nothing but fill a packed copy."""
        return place.leaf.buffer in self.packed or place.leaf.buffer in self.blocks


def find_copies(
    leaves: Iterable[Placed], buffers: Mapping[str, Buffer], stages: Collection[str]
) -> Copies:
    """The copies among `buffers`; those named in `stages` are tensors of the computation."""
    written: dict[str, list[Placed]] = {}
    read: dict[str, list[Placed]] = {}
    for place in leaves:
        if isinstance(place.leaf, PrefetchHint):
            continue
        written.setdefault(place.leaf.buffer, []).append(place)
        for load in loads(place.leaf.value):
            read.setdefault(load.tensor, []).append(place)

    def holds_elements(name: str) -> bool:
        return all(moves(place) for place in written[name])

    def moves(place: Placed) -> bool:
        """Whether the leaf writes elements of memory as they are, or of registers that do."""
        if not isinstance(place.leaf, StoreElement):
            return False
        if isinstance(place.leaf.value, Const):  # all of it is padding; sums are also updated
            return True
        load = moved(place.leaf.value)
        if load is None:
            return False
        is_memory = buffers[load.tensor].scope is not BufferScope.REGISTER
        return is_memory or holds_elements(load.tensor)

    def is_copied_out(name: str) -> bool:
        readers = read.get(name, [])
        memory = (buffers[place.leaf.buffer].scope is not BufferScope.REGISTER for place in readers)
        plain = all(isinstance(p.leaf, StoreElement) and moved(p.leaf.value) for p in readers)
        stored = all(isinstance(place.leaf, StoreElement) for place in written[name])
        return bool(readers) and plain and stored and all(memory)

    private = [n for n in written if n not in stages and buffers[n].scope is BufferScope.WORKSPACE]
    collected = frozenset(name for name in private if is_copied_out(name))
    packed = frozenset(n for n in private if n not in collected and holds_elements(n))
    blocks = frozenset(
        name
        for name in written
        if buffers[name].scope is BufferScope.REGISTER
        and all(place.leaf.buffer in packed for place in read.get(name, []))
        and holds_elements(name)
    )
    return Copies(packed, collected, blocks)


def moved(value: Scalar) -> Load | None:
    """The element that `value` is, at most converted, or replaced by a constant by a condition."""
    match value:
        case Load():
            return value
        case Cast(x, _):
            return moved(x)
        case Select(_, on_true, Const()):
            return moved(on_true)
        case Select(_, Const(), on_false):
            return moved(on_false)
        case _:
            return None
