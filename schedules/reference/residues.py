"""Sums with congruences, evaluated without the terms that a congruence excludes.

In `Y[y] += where((y - r) % n == 0, X[(y - r)//n], 0) * W[r]`, an output y has terms only for r with
the same remainder modulo n. For each remainder, the sum over these r alone is a sum with plain
indices, with a fraction 1/n**2 of the points. A transposed convolution is defined like this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, prod
from typing import TypeAlias

import numpy as np

from ..algebra.affine import Interval, var
from ..algebra.congruence import Congruence, congruence_of
from ..algebra.scalar import Reducer, substitute
from ..workload.settle import settled_body
from ..workload.tensors import Axis, Stage, Tensor
from .active import active_conditions
from .math import Array
from .reads import AxisCoordinates
from .sample import Grid

MOST_CLASSES = 4096
FEWEST_POINTS = 1 << 15
"""Most classes of a stage, and fewest points per class before it is split: each class costs some
NumPy calls."""

Residues: TypeAlias = Mapping[str, tuple[int, int]]
"""The remainder of some axes by a modulus: (remainder, modulus) by name."""


@dataclass(frozen=True, slots=True)
class ResidueClass:
    """The terms of a sum at fixed remainders of some of its axes."""

    stage: Stage
    """The sum of these terms, at the outputs with the remainders of the class."""
    grid: Grid
    """The elements of `stage` that are wanted."""
    where: tuple[Array, ...]
    """The positions of these elements among the wanted elements of the whole sum."""


def residue_classes(
    stage: Stage, grid: Grid, finite: Callable[[], bool]
) -> Iterator[ResidueClass] | None:
    """Return the classes with the terms of `stage` that no congruence excludes, for the elements
    `grid`. An element that is in no class is zero. No element is in two classes.

    Return None if no congruence excludes terms, or if classes would be too many or too small.
    `finite()` returns whether all tensors that the body reads are finite.
    """
    found = _congruences(stage, finite)
    return _classes(stage, grid, found) if found else None


def class_count(stage: Stage, grid: Grid) -> tuple[int, ResidueClass] | None:
    """Return the number of classes of a stage with finite operands, and the first one of them.
    Return None if it is evaluated as a whole."""
    found = _congruences(stage, lambda: True)
    first = next(_classes(stage, grid, found), None) if found else None
    if first is None:
        return None
    return prod(len(_solutions(c, tap)) for tap, c in found.items()), first


def _congruences(stage: Stage, finite: Callable[[], bool]) -> dict[str, Congruence]:
    """Return the congruences of independent axes that exclude terms of `stage`, each by the
    reduction axis in it. Return none if classes would be too many or too small."""
    found: dict[str, Congruence] = {}
    conds, neutral = active_conditions(stage, finite)
    if neutral is None or not stage.reduces_by(Reducer.SUM):
        return found
    reduced = {axis.name for axis in stage.reduce_axes}
    for cond in conds:
        congruence = congruence_of(cond)
        if congruence is None or congruence.modulus < 2:
            continue
        names = congruence.index.vars()
        taken = {name for other in found.values() for name in other.index.vars()}
        taps = names & reduced
        if len(taps) == 1 and len(names) > 1 and names.isdisjoint(taken):
            found[next(iter(taps))] = congruence
    count = prod(_outputs(congruence, tap) for tap, congruence in found.items())
    points = prod(axis.extent for axis in stage.all_axes)
    return found if count <= MOST_CLASSES and points >= FEWEST_POINTS * count else {}


def _outputs(congruence: Congruence, tap: str) -> int:
    """Return the number of remainders of all axes except `tap`."""
    names = congruence.index.vars() - {tap}
    return prod(_period(congruence, name) for name in names)


def _period(congruence: Congruence, name: str) -> int:
    return congruence.modulus // gcd(congruence.modulus, congruence.index.coefficient(name))


def _classes(
    stage: Stage, grid: Grid, congruences: Mapping[str, Congruence]
) -> Iterator[ResidueClass]:
    for each in product(*(_solutions(c, tap) for tap, c in congruences.items())):
        found = _class(stage, grid, {name: at for one in each for name, at in one.items()})
        if found is not None:
            yield found


def _solutions(congruence: Congruence, tap: str) -> list[Residues]:
    """Return the remainders of all axes for which `congruence` holds. There is at most one
    remainder of `tap` for those of the others."""
    n, index = congruence.modulus, congruence.index
    of_tap = {-index.coefficient(tap) * r % n: r for r in range(_period(congruence, tap))}
    others = sorted(index.vars() - {tap})
    periods = [_period(congruence, name) for name in others]
    found: list[Residues] = []
    for values in product(*map(range, periods)):
        rest = index.const + sum(
            index.coefficient(name) * at for name, at in zip(others, values, strict=True)
        )
        if rest % n in of_tap:
            residues = dict(zip(others, zip(values, periods, strict=True), strict=True))
            found.append({**residues, tap: (of_tap[rest % n], _period(congruence, tap))})
    return found


def _class(stage: Stage, grid: Grid, residues: Residues) -> ResidueClass | None:
    """Return the class of `residues`, or None if it has no term or no wanted element."""

    def thinned(axis: Axis) -> Axis:
        first, step = residues.get(axis.name, (0, 1))
        return Axis(axis.name, max(0, -(-(axis.extent - first) // step)))

    axes, taps = (tuple(map(thinned, some)) for some in (stage.axes, stage.reduce_axes))
    places: list[AxisCoordinates | None] = []
    where: list[Array] = []
    for axis, wanted in zip(stage.axes, grid, strict=True):
        first, step = residues.get(axis.name, (0, 1))
        if wanted is None:
            where.append(np.arange(first, axis.extent, step))
            places.append(None)
        else:
            (at,) = np.nonzero(wanted.values % step == first)
            where.append(at)
            places.append(AxisCoordinates((wanted.values[at] - first) // step))
    if not all(axis.extent for axis in (*axes, *taps)) or not all(at.size for at in where):
        return None
    ranges = {axis.name: Interval(0, axis.extent - 1) for axis in (*axes, *taps)}
    moved = {name: var(name) * step + first for name, (first, step) in residues.items()}
    body = settled_body(substitute(stage.body, moved), ranges, frozenset(a.name for a in taps))
    tensor = Tensor(stage.name, tuple(axis.extent for axis in axes), stage.tensor.dtype)
    made = replace(stage, tensor=tensor, axes=axes, body=body).reducing_over(taps)
    return ResidueClass(made, tuple(places), tuple(where))
