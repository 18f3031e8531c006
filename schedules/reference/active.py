"""Active iterations of a reduction: iterations whose term may differ from the neutral value.

A guard such as `where(k <= j, x, 0)`, padding, or a window written as an index (`W[y + p - 2*i]`)
makes most terms of a sum zero. This module splits the iteration space into boxes along its output
axes. In each box it clips the ranges of the reduction axes by interval arithmetic on the
conditions. A clipped box may still contain neutral terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import isnan

import numpy as np

from ..algebra.affine import Var
from ..algebra.comparisons import Cond, Eq0, Ge0
from ..algebra.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Load,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    walk,
)
from ..workload.tensors import Reduction, Stage
from .padding import needed
from .reads import IterationBox, leading_tiles

_SMALLEST_POINTS = 1 << 15
"""Boxes with fewer points are not split: the overhead of NumPy calls would dominate."""
_GAIN = 0.75
"""A box is split if its two clipped halves together have at most this fraction of the points of the
clipped box."""
_LOOKED_AT = 1 << 14
_WASTE, _LEAST_SHARE = 1.5, 1e-3
"""Estimated points in active boxes per active point, and the minimum of `active_share`."""


@dataclass(frozen=True, slots=True)
class Active:
    """The boxes of an iteration space in which terms may be active."""

    boxes: list[IterationBox]
    """The boxes that the caller evaluates and reduces."""
    partial: list[IterationBox]
    """Boxes whose outputs also have terms outside `boxes`. All of these terms are `neutral`."""
    neutral: Const | None
    """The value of each term outside `boxes`, or None if there are no such terms."""
    disjoint: bool
    """Whether no output element has terms in two of `boxes`."""


def active_boxes(
    stage: Stage, whole: IterationBox, max_points: int, finite: Callable[[], bool]
) -> Active:
    """Return the boxes of `whole` in which terms may be active, each with at most `max_points`
    points. Output axes are split before reduction axes. `finite()` returns whether all tensors that
    the body reads are finite. Only then is a product with zero neutral."""
    conds, neutral = active_conditions(stage, finite)
    outer = len(stage.axes)
    if neutral is None:
        boxes = list(leading_tiles(whole, max_points))
        return Active(boxes, [], None, not any(any(box.starts[outer:]) for box in boxes))
    boxes, partial = [], []
    for box, clipped in _cut(whole, conds, outer, max_points):
        if clipped is None or clipped != box:
            partial.append(box)
        if clipped is not None:
            boxes.append(clipped)
    tiled = [tile for box in boxes for tile in leading_tiles(box, max_points)]
    return Active(tiled, partial, neutral, len(tiled) == len(boxes))


def active_share(stage: Stage, whole: IterationBox, *, finite: bool = True) -> float:
    """Return an estimate of the fraction of the points of `whole` that `active_boxes` covers, from
    a random sample. `finite` states whether all tensors that the body reads are finite."""
    conds, neutral = active_conditions(stage, lambda: finite)
    if neutral is None or not whole.points:
        return 1.0
    rng = np.random.Generator(np.random.PCG64(whole.points))
    env = {}
    for place, (name, start, extent) in enumerate(
        zip(whole.names, whole.starts, whole.extents, strict=True)
    ):
        at = rng.integers(start, start + extent, _LOOKED_AT)
        line = whole.places[place] if whole.places else None
        env[name] = at if line is None else line.values[at]
    holds = np.ones(_LOOKED_AT, np.bool_)
    for cond in conds:
        values = np.asarray(cond.index.evaluate(env))  # type: ignore[arg-type]  # values are arrays
        holds &= values >= 0 if isinstance(cond, Ge0) else values == 0
    return min(_WASTE * float(holds.mean()) + _LEAST_SHARE, 1.0)


def active_conditions(
    stage: Stage, finite: Callable[[], bool]
) -> tuple[tuple[Cond, ...], Const | None]:
    """Return the conditions that must all hold for a term to be active, and the value of a term if
    one of them fails. Return () and None if no condition depends on a reduction axis."""
    match stage.kind:
        case Reduction(Reducer.SUM | Reducer.MAX | Reducer.MIN as reducer, axes):
            pass
        case _:
            return (), None
    body, conds, neutral = _chosen(stage.body, reducer, None)
    if reducer is Reducer.SUM and _is_finite_for_finite(body):
        products = tuple(c for part in needed(body) if isinstance(part, All) for c in part.conds)
        if products and finite():
            conds, neutral = (*conds, *products), Const(0, stage.tensor.dtype)
    reduced = {a.name for a in axes}
    if not any(cond.index.vars() & reduced for cond in conds):
        return (), None
    return conds, neutral


def _chosen(
    node: Scalar, reducer: Reducer, known: Const | None
) -> tuple[Scalar, tuple[Cond, ...], Const | None]:
    """Remove the outer Selects on index conditions from `node`. Return the inner expression, the
    conditions, and the constant that the Selects return if a condition fails. A Select is removed
    only if its constant is neutral for `reducer`, and equals `known` unless `known` is None."""
    match node:
        case Select(All(conds), on_true, Const(value, _) as other):
            counts = value != 0 if reducer is Reducer.SUM else isnan(value)
            if not counts and known in (None, other):
                body, more, neutral = _chosen(on_true, reducer, other)
                return body, (*conds, *more), neutral
        case _:
            pass
    return node, (), known


def _is_finite_for_finite(node: Scalar) -> bool:
    """Return whether `node` has only operations that are finite in float64 for finite operands."""
    allowed = (BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MAX, BinaryOp.MIN)
    return all(
        isinstance(part, Load | Const | Select | All | Cast)
        or (isinstance(part, Unary) and part.op in (UnaryOp.NEG, UnaryOp.ABS))
        or (isinstance(part, Binary) and part.op in allowed)
        for part in walk(node)
    )


@dataclass(frozen=True, slots=True)
class _Linear:
    """The condition `const + sum(factor * axis) >= 0`, or `== 0` if `equal`. `terms` are pairs of
    an axis position and a factor."""

    const: int
    terms: tuple[tuple[int, int], ...]
    equal: bool


def _linear(conds: Sequence[Cond], names: Sequence[str]) -> list[_Linear]:
    """Return the conditions without divisions and remainders as `_Linear`. `names` are the axes."""
    found = []
    for cond in conds:
        terms = cond.index.terms
        if all(isinstance(atom, Var) for atom, _ in terms):
            at = tuple((names.index(str(atom)), factor) for atom, factor in terms)
            found.append(_Linear(cond.index.const, at, isinstance(cond, Eq0)))
    return found


def _cut(
    whole: IterationBox, conds: Sequence[Cond], outer: int, max_points: int
) -> Iterator[tuple[IterationBox, IterationBox | None]]:
    """Split `whole` into boxes. Yield each box with its part that may be active, or with None if
    no point is active."""
    linear = _linear(conds, whole.names)
    places = sorted({p for cond in linear for p, _ in cond.terms if p < outer})
    stack = [whole]
    while stack:
        box = stack.pop()
        clipped = _clipped(box, linear, outer)
        halves = None
        if clipped is not None and clipped.points > _SMALLEST_POINTS:
            halves = _best_halves(box, clipped, linear, outer, places)
            if halves is None and clipped.points > max_points:
                halves = _any_halves(box, outer)
        if halves is None:
            yield box, clipped
        else:
            stack += reversed(halves)


def _best_halves(
    box: IterationBox,
    clipped: IterationBox,
    conds: Sequence[_Linear],
    outer: int,
    places: Sequence[int],
) -> tuple[IterationBox, IterationBox] | None:
    """Return the two halves of `box`, cut along the axis for which the clipped halves have the
    fewest points. `places` are the positions of the axes to try. Return None if no cut leaves at
    most the fraction `_GAIN` of the points of `clipped`."""
    best: tuple[float, tuple[IterationBox, IterationBox]] | None = None
    for place in places:
        if box.extents[place] < 2:
            continue
        halves = _halves(box, place)
        parts = (_clipped(half, conds, outer) for half in halves)
        left = sum(part.points for part in parts if part is not None)
        if left <= _GAIN * clipped.points and (best is None or left < best[0]):
            best = left, halves
    return None if best is None else best[1]


def _any_halves(box: IterationBox, outer: int) -> tuple[IterationBox, IterationBox] | None:
    """Return the halves of `box` along its first output axis with more than one iteration, or None
    if there is no such axis."""
    place = next((p for p in range(outer) if box.extents[p] > 1), None)
    return None if place is None else _halves(box, place)


def _halves(box: IterationBox, place: int) -> tuple[IterationBox, IterationBox]:
    start, extent = box.starts[place], box.extents[place]
    half = extent // 2

    def part(first: int, length: int) -> IterationBox:
        starts, extents = list(box.starts), list(box.extents)
        starts[place], extents[place] = first, length
        return replace(box, starts=tuple(starts), extents=tuple(extents))

    return part(start, half), part(start + half, extent - half)


def _clipped(box: IterationBox, conds: Sequence[_Linear], outer: int) -> IterationBox | None:
    """Clip the ranges of the reduction axes of `box` to the iterations in which all `conds` may
    hold. Return the new box, or None if no iteration remains."""
    if not box.points:
        return None
    low, high = list(box.starts), [s + e - 1 for s, e in zip(box.starts, box.extents, strict=True)]
    for place, line in enumerate(box.places):
        if line is not None:
            low[place], high[place] = int(line.values[low[place]]), int(line.values[high[place]])
    for cond in conds:
        # The least and the greatest value of the condition's index over the box.
        least = cond.const + sum(f * (low[p] if f > 0 else high[p]) for p, f in cond.terms)
        most = cond.const + sum(f * (high[p] if f > 0 else low[p]) for p, f in cond.terms)
        if most < 0 or (cond.equal and least > 0):
            return None
        for place, factor in cond.terms:
            if place < outer:
                continue
            # factor * axis >= rest. For an equation, factor * axis <= other holds too.
            rest = -(most - factor * (high[place] if factor > 0 else low[place]))
            other = -(least - factor * (low[place] if factor > 0 else high[place]))
            bounds = [rest, other if cond.equal else None]
            if factor < 0:
                bounds.reverse()
            first, last = bounds
            if first is not None:
                low[place] = max(low[place], -(-first // factor))
            if last is not None:
                high[place] = min(high[place], last // factor)
            if low[place] > high[place]:
                return None
    starts = (*box.starts[:outer], *low[outer:])
    lengths = (h - s + 1 for s, h in zip(low[outer:], high[outer:], strict=True))
    return replace(box, starts=starts, extents=(*box.extents[:outer], *lengths))
