"""Shifted loops: elementwise code for arrays that do not begin at a cache line.

If every access of a loop has the same element index in its array, a loop over shifted arrays
computes the same values. Therefore the loop runs on pointers that begin at the first whole cache
line of the output, with one iteration less. Two more iterations with the original pointers compute
both ends. They store some elements again, with the same values. Usually all arrays have the same
offset from a cache line, because one allocator provides them. Then the vectors of the loop are
aligned, and the output may be stored non-temporally.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.algebra.affine import Affine, Var
from tilewright.schedules.algebra.scalar import All, IndexValue, Load
from tilewright.schedules.algebra.scalar import walk as walk_scalar
from tilewright.schedules.nest.loop_ir import For, LoopKind, Nest, StoreElement, walk

LINE_BYTES = 64
LEAST_TRIPS = 8
"""The smallest trip count for which two additional iterations are profitable."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The arguments whose pointers are shifted."""

    arguments: frozenset[int]
    """Their positions among the arguments."""
    output: int
    """The position of the argument that the loop writes."""


def shift_of(nest: Nest, loop: For) -> Shift | None:
    """Return how to shift `loop`, a top-level statement of the nest, or None if it cannot be
    shifted.

    The loop must contain one statement, a store without guards. Its loops must write the elements
    of an argument in order, and each iteration must write whole cache lines. The value may depend
    only on constants and on the same element of other arguments.
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
                    return None  # elements that are stored twice must not depend on the old value
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
    """Return the loops inside `loop`, outermost first, and its only store. Return None if there are
    other statements or a loop has bounds."""
    statements = list(walk(loop.body))
    *loops, leaf = statements
    inner = [s for s in loops if isinstance(s, For) and not s.bounds]
    if loop.bounds or len(inner) != len(loops) or not isinstance(leaf, StoreElement):
        return None
    return inner, leaf


def _block_elements(place: Affine, inner: list[For]) -> int | None:
    """Return the number of contiguous elements that the loops `inner` write, or None if there are
    gaps."""
    by_step = sorted((place.coefficient(loop.var), loop.extent) for loop in inner)
    block = 1
    for step, extent in by_step:
        if extent > 1 and step != block:
            return None
        block *= extent
    return block


def _in_order(place: Affine, name: str, block: int) -> Affine:
    """Return `place` with coefficient `block` for loop `name` and without the constant term.

    The result equals `place` if the first iteration begins at the array's start and each further
    iteration begins `block` elements later.
    """
    rest = tuple((v, c) for v, c in place.terms if isinstance(v, Var) and v.name != name)
    return Affine((), 0) + Affine(rest, 0) + Affine(((Var(name), block),), 0)
