"""Count the points of a box at which index conditions hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import gcd, prod
from typing import TYPE_CHECKING, Any

from .affine import Affine, affine, var
from .comparisons import Cond, Eq0, substitute_cond
from .congruence import congruence_of

if TYPE_CHECKING:
    import numpy as np

MOST_POINTS = 1 << 22
"""Most points that are enumerated."""

_MAX_TESTED_PLACES = 1 << 16
"""Most places at which an estimate tests conditions."""


def points_where(extents: Mapping[str, int], conds: tuple[Cond, ...]) -> int:
    """Return the number of points of the box with these `extents` at which every condition holds.

    A connected group of axes with more than 2**22 points is counted along its longest axis at once,
    if the other axes have fewer points, and if this axis occurs in linear conditions and at most
    one congruence. Otherwise the group is counted in full.
    """
    if not conds:
        return prod(extents.values())
    points = 1
    for names, group in _groups(conds, list(extents)):
        points *= _count({n: extents[n] for n in names}, group)
    return points


def estimated_share(extents: Mapping[str, int], conds: Collection[Cond]) -> float:
    """Return an estimate of the fraction of the points of the box with these `extents` at which
    every condition holds. The conditions are tested at `_MAX_TESTED_PLACES` places at most, evenly
    spaced along each axis."""
    used = frozenset[str]().union(*(cond.index.vars() for cond in conds))
    most = max(int(_MAX_TESTED_PLACES ** (1 / max(len(used), 1))), 1)
    steps = {name: -(-extents[name] // most) for name in sorted(used)}
    places = {name: -(-extents[name] // step) for name, step in steps.items()}
    at = {name: var(name) * step for name, step in steps.items()}
    found = points_where(places, tuple(substitute_cond(cond, at) for cond in conds))
    return found / max(prod(places.values()), 1)


def _groups(conds: tuple[Cond, ...], names: list[str]) -> list[tuple[list[str], list[Cond]]]:
    """Return groups of axes such that no condition depends on two groups. Each group comes with its
    conditions."""
    groups: list[tuple[set[str], list[Cond]]] = [({n}, []) for n in names]
    for cond in conds:
        meeting = [g for g in groups if g[0] & cond.index.vars()]
        groups = [g for g in groups if not g[0] & cond.index.vars()]
        joined = set().union(*(g[0] for g in meeting))
        groups.append((joined, [c for g in meeting for c in g[1]] + [cond]))
    return [(sorted(g[0]), g[1]) for g in groups]


def _count(extents: dict[str, int], conds: list[Cond]) -> int:
    """Return the number of points of the box that satisfy every condition. A box that is too large
    and cannot be counted along one axis is counted in full."""
    total = prod(extents.values())
    if not conds:
        return total
    if total > MOST_POINTS:
        longest = max(extents, key=lambda name: extents[name])
        return _along(longest, extents, conds)
    env = _grid(extents)
    import numpy  # Start-up: only conditions need NumPy

    holds = numpy.ones(tuple(extents.values()), dtype=bool)
    for cond in conds:
        found = _evaluate(cond.index, env)
        holds &= found == 0 if isinstance(cond, Eq0) else found >= 0
    return int(holds.sum())


def _along(name: str, extents: dict[str, int], conds: list[Cond]) -> int:
    """Return the number of points, with the positions along the axis `name` counted at once for
    each point of the other axes: they are in an interval, and have the same remainder by a modulus.
    Return all points if the conditions do not have this form."""
    import numpy  # Start-up: only conditions need NumPy

    others = {other: extent for other, extent in extents.items() if other != name}
    everything = prod(extents.values())
    if prod(others.values()) > MOST_POINTS:
        return everything
    env = _grid(others)
    shape = tuple(others.values())
    low, high = numpy.zeros(shape, numpy.int64), numpy.full(shape, extents[name] - 1)
    allowed = numpy.ones(shape, dtype=bool)
    modulus, remainder = 1, numpy.zeros(shape, numpy.int64)
    for cond in conds:
        congruence = congruence_of(cond)
        index = cond.index if congruence is None else congruence.index
        if not index.is_linear_in(name):
            return everything
        step = index.coefficient(name)
        rest = _evaluate(index.substitute({name: affine(0)}), env)
        if congruence is not None and congruence.modulus:
            if modulus != 1 or gcd(step, congruence.modulus) != 1:
                return everything
            modulus = congruence.modulus
            remainder = -rest * pow(step, -1, modulus) % modulus
        elif step == 0:
            allowed &= rest == 0 if isinstance(cond, Eq0) else rest >= 0
        elif isinstance(cond, Eq0):
            allowed &= rest % step == 0
            low, high = numpy.maximum(low, -rest // step), numpy.minimum(high, -rest // step)
        elif step > 0:
            low = numpy.maximum(low, -(rest // step))
        else:
            high = numpy.minimum(high, rest // -step)
    found = (high - remainder) // modulus - (low - 1 - remainder) // modulus
    return int(numpy.where(allowed & (high >= low), found, 0).sum())


def _grid(extents: Mapping[str, int]) -> dict[str, Any]:
    import numpy  # Start-up: only conditions need NumPy

    lines = (numpy.arange(extent, dtype=numpy.int64) for extent in extents.values())
    return dict(zip(extents, numpy.meshgrid(*lines, indexing="ij", sparse=True), strict=True))


def _evaluate(index: Affine, env: dict[str, np.ndarray]) -> np.ndarray:
    import numpy  # Start-up: only conditions need NumPy

    return numpy.asarray(index.evaluate(env))  # type: ignore[arg-type]  # accepts arrays too
