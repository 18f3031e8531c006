"""Which elements of which tensors a lowered nest touches: the bytes that its caches see.

Private copies are left out, and what fills them is not: a tensor is touched wherever its elements
are read from, and a copy is no tensor of the computation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.schedules.algebra.affine import Affine
from tilewright.schedules.algebra.scalar import All, Load, Scalar, Select, children
from tilewright.schedules.nest.loop_ir import PrefetchHint

from .instances import BoolArray, Never, Placed, Rule, evaluated, grid, names_in, truth
from .program import Program


def touched_bytes(program: Program) -> dict[str, int]:
    """Bytes of each tensor that is touched: arguments, and values between stages in memory."""
    marks: dict[str, BoolArray] = {}
    for place in program.leaves:
        if isinstance(place.leaf, PrefetchHint):
            continue
        for name, index, rules in _accesses(place):
            if program.in_memory(name) and name not in program.copies.buffers:
                buffer = program.buffers[name]
                found = marks.setdefault(name, np.zeros(buffer.elements, np.bool_))
                found[_offsets(program, place, name, index, rules)] = True
    return {
        name: int(np.count_nonzero(found)) * program.buffers[name].dtype.bytes
        for name, found in marks.items()
    }


def _accesses(place: Placed) -> Iterator[tuple[str, tuple[Affine, ...], tuple[Rule, ...]]]:
    """Each element that a leaf reads or writes, and what must hold for that."""
    leaf = place.leaf
    assert not isinstance(leaf, PrefetchHint)
    yield leaf.buffer, leaf.index, ()
    for load, rules in _loads(leaf.value, ()):
        yield load.tensor, load.index, rules


def _loads(node: Scalar, rules: tuple[Rule, ...]) -> Iterator[tuple[Load, tuple[Rule, ...]]]:
    if isinstance(node, Load):
        yield node, rules
    elif isinstance(node, Select) and isinstance(node.cond, All):
        yield from _loads(node.on_true, (*rules, *node.cond.conds))
        yield from _loads(node.on_false, (*rules, Never(node.cond.conds)))
    else:
        for child in children(node):
            yield from _loads(child, rules)


def _offsets(
    program: Program, place: Placed, name: str, index: tuple[Affine, ...], rules: tuple[Rule, ...]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The numbers of all elements that one access meets."""
    offset = program.offset(name, index)
    every = (*place.conds, *rules)
    tied, before = set(offset.vars()), -1
    while len(tied) != before:  # conditions on loops that share one with those of the index
        before = len(tied)
        tied |= {name for rule in every if names_in(rule) & tied for name in names_in(rule)}
    loops = [loop for loop in place.loops if loop.var in tied]
    names, extents = [loop.var for loop in loops], [loop.extent for loop in loops]
    holding = truth([r for r in every if names_in(r) and names_in(r) <= tied], names, extents)
    values = np.broadcast_to(evaluated(offset, grid(names, extents)), holding.shape)
    return np.unique(values[holding])
