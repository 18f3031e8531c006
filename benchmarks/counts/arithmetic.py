"""Arithmetic of a lowered nest: which operations run how often.

An operation is a node of a leaf's value, or the leaf's own update. It runs once for all lanes, and
once for all copies of an unrolled loop that it does not depend on. A choice that unrolled loops
alone decide is made while code is written; of any other choice both sides run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, log2

from tilewright.schedules.algebra.comparisons import Cond
from tilewright.schedules.algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    Const,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    children,
    index_conds,
    loads,
    vars_of,
)
from tilewright.schedules.nest.loop_ir import PrefetchHint, StoreElement, Update

from .instances import Never, Placed, Rule, count, names_in
from .program import Program, is_horizontal

MATH = frozenset({UnaryOp.EXP, UnaryOp.LOG, UnaryOp.TANH, UnaryOp.ERF, UnaryOp.SIGMOID})

Ways = dict[Scalar, list[tuple[Rule, ...]]]
"""Nodes of a value, each with the ways to it: what unrolled loops must have decided."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`times` instructions on `lanes` elements each, `flops` an element: none for moves between
    lanes, conversions and choices."""

    times: int
    lanes: int
    flops: int
    is_math: bool
    is_masked: bool


def operations(program: Program, place: Placed) -> Iterator[Operation]:
    """Those of one leaf."""
    leaf, masked = place.leaf, is_masked(place)
    assert not isinstance(leaf, PrefetchHint)
    fused = _fused(leaf)
    for node, ways in ways_to(place, _is_operation).items():
        if node != fused:
            is_math = isinstance(node, Unary) and node.op in MATH
            flops = int(isinstance(node, Unary | Binary))
            lanes = _lanes(place, node)
            yield Operation(times(place, node, ways), lanes, flops, is_math, masked)
    all_lanes = 1 if place.lanes is None else place.lanes.extent
    runs = count(place.loops, place.conds, place.steps)
    if is_horizontal(place):
        steps = runs * ceil(log2(max(all_lanes, 2)))
        yield Operation(steps, all_lanes, 1, False, masked)
        yield Operation(steps, all_lanes, 0, False, masked)
    elif isinstance(leaf, Update) and leaf.first != ():
        yield Operation(runs, all_lanes, 1 + (fused is not None), False, masked)
    for load in _transposed(program, place):
        side = min(program.buffers[load.tensor].shape[-1], all_lanes)
        yield Operation(runs * ceil(log2(max(side, 2))), all_lanes, 0, False, masked)


def ways_to(place: Placed, wanted: Callable[[Scalar], bool]) -> Ways:
    """The `wanted` nodes of a leaf's value."""
    assert not isinstance(place.leaf, PrefetchHint)
    decided = place.decided
    found: Ways = {}

    def visit(node: Scalar, way: tuple[Rule, ...]) -> None:
        if wanted(node):
            found.setdefault(node, []).append(way)
        if isinstance(node, Select) and isinstance(node.cond, All):
            conds = node.cond.conds
            if all(cond.index.vars() <= decided for cond in conds):
                visit(node.on_true, (*way, *conds))
                visit(node.on_false, (*way, Never(conds)))
                return
        for child in children(node):
            visit(child, way)

    visit(place.leaf.value, ())
    return found


def times(place: Placed, node: Scalar, ways: list[tuple[Rule, ...]]) -> int:
    """How often a node of the leaf's value is evaluated: once in each copy of a loop that it
    depends on, or that writes what it reads."""
    read = {load.tensor for load in loads(node)}
    used = vars_of(node) | {
        loop.var for loop in place.unrolled_inside if loop.inside.written & read
    }
    keep = {loop.var for loop in place.running}
    keep |= used & {loop.var for loop in place.unrolled_inside}
    each = [count(place.loops, (*place.conds, *way), keep) for way in ways]
    chosen = frozenset().union(*(names_in(rule) for way in ways for rule in way))
    apart = place.decided & keep  # what these choose is done at other times
    return sum(each) if chosen & (used | apart) else max(each)


def is_masked(place: Placed) -> bool:
    """Whether a condition is left at run time: a guard, or where something is read. One on lanes
    is a mask, made of a comparison ahead of the loop or beside it; a guard that leaves out zeros,
    which a result has for some steps of its sum, is a branch."""
    leaf, decided, lanes = place.leaf, place.decided, place.lanes
    assert not isinstance(leaf, PrefetchHint)
    steps = {loop.var for loop in place.loops if loop.reduce and isinstance(leaf, Update)}
    guards = [x for x in leaf.guards if x.index.vars() <= steps or not x.index.vars() & steps]
    conds: list[Cond] = [*guards, *index_conds(leaf.value)]
    left = [cond.index.vars() - decided for cond in conds]
    return any(names for names in left if lanes is None or lanes.var not in names)


def _is_operation(node: Scalar) -> bool:
    """Whether a node is an instruction. A choice by index is a mask of what is read."""
    if isinstance(node, Cast):
        return node.x.dtype is not node.dtype and not isinstance(node.x, Const)
    is_choice = isinstance(node, Select) and not isinstance(node.cond, All)
    return is_choice or isinstance(node, Unary | Binary | Compare)


def _lanes(place: Placed, node: Scalar) -> int:
    lanes = place.lanes
    return lanes.extent if lanes is not None and lanes.var in vars_of(node) else 1


def _fused(leaf: StoreElement | Update) -> Scalar | None:
    """The product that is added in one instruction, if there is one."""
    if (
        isinstance(leaf, StoreElement)
        or leaf.reducer is not Reducer.SUM
        or not leaf.value.dtype.is_float
    ):
        return None
    value = leaf.value
    while isinstance(value, Select):
        value = value.on_true
    return value if isinstance(value, Binary) and value.op is BinaryOp.MUL else None


def _transposed(program: Program, place: Placed) -> list[Load]:
    """Reads of registers whose lanes lie in different ones."""
    assert not isinstance(place.leaf, PrefetchHint)
    lanes = place.lanes
    if lanes is None:
        return []
    found = (x for x in dict.fromkeys(loads(place.leaf.value)) if not program.in_memory(x.tensor))
    return [x for x in found if program.offset(x.tensor, x.index).coefficient(lanes.var) > 1]
