"""Shifted loops: elementwise code for arrays that do not begin at a cache line.

If every access of a loop is to the same place of its array, shifting all arrays by some elements
only shifts the result. So the loop runs on pointers that begin at the output's first whole line,
with one iteration less. Two more iterations on the original pointers then compute both ends; they
write some elements again, with the same values. Vectors are then aligned for arrays with equal
alignment, as usual with one allocator, and the output may be written by non-temporal stores.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.algebra.affine import Affine, Var
from tilewright.schedules.algebra.scalar import All, IndexValue, Load
from tilewright.schedules.algebra.scalar import walk as walk_scalar
from tilewright.schedules.nest.loop_ir import For, LoopKind, Nest, StoreElement, walk

LINE_BYTES = 64
LEAST_TRIPS = 8
"""The least number of iterations for which two more pay off."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The positions of the arguments that are shifted with a loop, and of the one it writes."""

    arguments: frozenset[int]
    output: int


def shift_of(nest: Nest, loop: For) -> Shift | None:
    """The shift of `loop`, a top-level statement of the nest; None if it cannot be shifted.

    It can if it is one store in loops that together write an argument's elements in order, whole
    lines in each iteration, and every value depends only on constants and the same element of other
    arguments.
    """
    if loop.extent < LEAST_TRIPS or loop.kind not in (LoopKind.SERIAL, LoopKind.PARALLEL):
        return None
    found = _only_store(loop)
    if found is None:
        return None
    inner, leaf = found
    arguments = {b.name: (n, b) for n, b in enumerate(nest.argument_buffers)}
    if leaf.guards or leaf.buffer not in arguments:
        return None
    number, buffer = arguments[leaf.buffer]
    place = buffer.flat_offset(leaf.index)
    block = _block_elements(place, inner)
    if block is None or place != _in_order(place, loop.var, block):
        return None
    if block * buffer.dtype.bytes % LINE_BYTES:
        return None
    shifted = {number}
    for node in walk_scalar(leaf.value):
        match node:
            case Load():
                if node.tensor not in arguments or node.tensor == leaf.buffer:
                    return None  # elements written twice must not depend on the old value
                other, read = arguments[node.tensor]
                if read.flat_offset(node.index) != place:
                    return None
                shifted.add(other)
            case All() | IndexValue():
                return None
            case _:
                pass
    return Shift(frozenset(shifted), number)


def _only_store(loop: For) -> tuple[list[For], StoreElement] | None:
    """The loops inside of `loop`, outermost first, and the store inside, if there is nothing
    else."""
    statements = list(walk(loop.body))
    *loops, leaf = statements
    inner = [s for s in loops if isinstance(s, For) and not s.bounds]
    if loop.bounds or len(inner) != len(loops) or not isinstance(leaf, StoreElement):
        return None
    return inner, leaf


def _block_elements(place: Affine, inner: list[For]) -> int | None:
    """The number of contiguous elements that the loops `inner` write; None if there are gaps."""
    by_step = sorted((place.coefficient(loop.var), loop.extent) for loop in inner)
    block = 1
    for step, extent in by_step:
        if extent > 1 and step != block:
            return None
        block *= extent
    return block


def _in_order(place: Affine, name: str, block: int) -> Affine:
    """`place` if iteration n of loop `name` begins `block` elements behind iteration n - 1, and the
    first at the array's beginning."""
    rest = tuple((v, c) for v, c in place.terms if isinstance(v, Var) and v.name != name)
    return Affine((), 0) + Affine(rest, 0) + Affine(((Var(name), block),), 0)
