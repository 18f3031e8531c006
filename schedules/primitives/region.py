"""Which part of a tensor a piece of a nest touches: a box that moves with the loops around it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from math import gcd

from ..algebra.affine import (
    Affine,
    Cond,
    Interval,
    Ranges,
    Var,
    affine,
    at_least,
    interval,
    less,
    prove,
    simplify,
    var,
)
from ..errors import ScheduleError


@dataclass(frozen=True, slots=True)
class Region:
    """For each dimension, the elements `base + step * x` for x in 0..extent-1.

    `base` mentions only variables of loops around the piece.
    """

    base: tuple[Affine, ...]
    step: tuple[int, ...]
    extent: tuple[int, ...]

    def local_index(self, index: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """Where an element the piece touches lies in a copy of the region."""
        local = []
        for i, base, step in zip(index, self.base, self.step, strict=True):
            offset = i - base
            # A division's value is a multiple where its constant alone need not be one.
            assert offset.const % step == 0 or any(not isinstance(a, Var) for a, _ in offset.terms)
            local.append(offset // step)
        return tuple(local)

    def element(self, x: tuple[Affine, ...]) -> tuple[Affine, ...]:
        """The tensor element that position `x` of the region stands for."""
        return tuple(b + i * s for b, s, i in zip(self.base, self.step, x, strict=True))

    def bounds(self, names: tuple[str, ...]) -> dict[str, Interval]:
        """Ranges of position variables called `names`."""
        return {n: Interval(0, e - 1) for n, e in zip(names, self.extent, strict=True)}


def region_of(
    indices: Iterable[tuple[Affine, ...]], inner: Ranges, outer: Ranges, asked_by: object
) -> Region:
    """The smallest box around all `indices`, the `inner` variables running over their ranges.

    ScheduleError where an index mixes inner and outer variables in one division, so that the
    box would have no fixed size, or where two indices start at unrelated places.
    """
    boxes = [tuple(_dimension(i, inner, outer, asked_by) for i in index) for index in indices]
    merged = list(boxes[0])
    for box in boxes[1:]:
        merged = [_union(a, b, asked_by) for a, b in zip(merged, box, strict=True)]
    base, step, extent = [], [], []
    for start, width, stride in merged:
        base.append(start)
        step.append(max(stride, 1))
        extent.append(width // max(stride, 1) + 1)
    return Region(tuple(base), tuple(step), tuple(extent))


def in_bounds(
    index: tuple[Affine, ...], shape: tuple[int, ...], ranges: Ranges
) -> tuple[Cond, ...]:
    """The conditions, of those that say `index` is inside `shape`, that are not always true."""
    conds: list[Cond] = []
    for i, extent in zip(index, shape, strict=True):
        both = (at_least(i, 0), less(i, extent))
        conds.extend(cond for cond in both if prove(cond, ranges) is not True)
    return tuple(conds)


def _dimension(
    index: Affine, inner: Ranges, outer: Ranges, asked_by: object
) -> tuple[Affine, int, int]:
    """(least value, highest minus least, step) over the inner variables."""
    index = simplify(index, {**outer, **inner})
    fixed, moving = affine(index.const), affine(0)
    for atom, c in index.terms:
        term = Affine(((atom, c),), 0)
        names = term.vars()
        if names.isdisjoint(inner):
            fixed = fixed + term
        elif names <= inner.keys():
            moving = moving + term
        else:
            raise ScheduleError(
                asked_by, f"index {index} divides a sum of loops from inside and outside"
            )
    bounds = interval(moving, inner)
    plain = all(isinstance(a, Var) for a, _ in moving.terms)
    step = reduce(gcd, (abs(c) for _, c in moving.terms), 0) if plain else 1
    return fixed + bounds.lo, bounds.hi - bounds.lo, step


def _union(
    a: tuple[Affine, int, int], b: tuple[Affine, int, int], asked_by: object
) -> tuple[Affine, int, int]:
    offset = b[0] - a[0]
    if not offset.is_const:
        raise ScheduleError(asked_by, f"two reads start at unrelated places, {a[0]} and {b[0]}")
    shift = offset.const
    low = min(0, shift)
    high = max(a[1], shift + b[1])
    return a[0] + low, high - low, gcd(gcd(a[2], b[2]), abs(shift))


def position_names(prefix: str, extent: tuple[int, ...], taken: set[str]) -> tuple[str, ...]:
    """New loop names `prefix`0, `prefix`1, ... for the dimensions of a region."""
    names = []
    for d in range(len(extent)):
        name = f"{prefix}.{d}"
        while name in taken:
            name += "'"
        taken.add(name)
        names.append(name)
    return tuple(names)


def loops_of(names: tuple[str, ...], extent: tuple[int, ...]) -> tuple[str, ...]:
    """Those of `names` that are loops: the ones of dimensions of more than one element."""
    return tuple(name for name, e in zip(names, extent, strict=True) if e > 1)


def position_vars(names: tuple[str, ...], extent: tuple[int, ...]) -> tuple[Affine, ...]:
    """The variables of `names`; zero in dimensions of extent 1, which get no loop."""
    return tuple(var(n) if e > 1 else affine(0) for n, e in zip(names, extent, strict=True))
