"""Alignment peeling: elementwise loops shifted to the first cache line of an unaligned output.

If every access of a loop has the same index in its array, all pointers may be shifted by some
elements. The loop runs on pointers shifted to the output's first whole cache line, for one
iteration less, and afterwards the first and last iterations run on the original pointers; they
write some elements twice, with the same values. Vectors are then aligned for arrays with equal
misalignment, as from one allocator, and the output may be written with non-temporal stores.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.algebra.affine import Affine, Var
from tilewright.schedules.algebra.scalar import All, IndexValue, Load
from tilewright.schedules.algebra.scalar import walk as walk_scalar
from tilewright.schedules.nest.loop_ir import For, LoopKind, Nest, StoreElement, walk

LINE_BYTES = 64
LEAST_TRIPS = 8
"""Loops with fewer iterations are not shifted: two more would cost too much."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The positions of the arguments that are shifted with a loop, and of its output."""

    arguments: frozenset[int]
    output: int


def shift_of(nest: Nest, loop: For) -> Shift | None:
    """The shift of `loop`, a top-level statement of the nest; None if it may not be shifted.

    It may be shifted if it is one store in loops that write an argument's elements in order, whole
    cache lines in each iteration, and its value depends only on constants and on the same element
    of other arguments.
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
                    return None  # elements are written twice, so they must not depend on old values
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
    """The perfectly nested loops inside of `loop`, outermost first, and the single store in them;
    None if there is anything else."""
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
    """`place` for the first iteration, if each iteration of loop `name` begins `block` elements
    after the previous one and the first at the array's beginning."""
    rest = tuple((v, c) for v, c in place.terms if isinstance(v, Var) and v.name != name)
    return Affine((), 0) + Affine(rest, 0) + Affine(((Var(name), block),), 0)
