"""Which loops of different stages iterate over the same data, so that one axis represents them.

The passes over a row run one after the other, but a plan is a single nest. So each axis of the plan
represents at most one loop of each stage. If an axis represented loops over different data, the
plan would have more iterations than any pass: a pooling of 8x8 windows of 2x2 elements would read
its operand, computed in a 16x16 pass before it, as if each of the 64 windows had 16x16 elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from ...algebra.gathers import unlimited
from ..analysis.stages import StageLoop, StageRead, StageView

Walk: TypeAlias = Mapping[str, StageLoop]
"""An axis of a plan: the loop that it represents, by the name of the stage."""


def common_axes(stages: Sequence[StageView], own: Mapping[str, Sequence[StageLoop]]) -> list[Walk]:
    """Return the axes that represent the loops `own` of each stage, outermost first.

    Loops are represented by one axis if they move along the same dimension of a tensor. Tensors
    that stages of the group write take precedence over other tensors. The order is that of the
    stage with the most points, with the axes of other stages after those that precede them there.
    """
    classes = _Classes(stages, own)
    for stage, name, place in _moves(stages, own):
        classes.join((stage, name), place)
    order: list[int] = []
    for view in sorted(stages, key=lambda view: -view.points):
        after = 0
        for loop in own[view.name]:
            number = classes.of[view.name, loop.name]
            if number not in order:
                order.insert(after, number)
            after = order.index(number) + 1
    return [classes.loops[number] for number in order]


_Place: TypeAlias = tuple[str, int, int]
"""A tensor, a dimension, and a number: 0 for loops that take the longest steps there, and so on."""


class _Classes:
    """Disjoint sets of loops and of the places along which they move."""

    def __init__(self, stages: Sequence[StageView], own: Mapping[str, Sequence[StageLoop]]) -> None:
        every = [(view.name, loop) for view in stages for loop in own[view.name]]
        self.loops = {n: {stage: loop} for n, (stage, loop) in enumerate(every)}
        """The loops of each set, by the names of their stages."""
        self.of = {(stage, loop.name): n for n, (stage, loop) in enumerate(every)}
        """The number of the set of each loop, by its stage and name."""
        self.at: dict[_Place, int] = {}
        """The number of the set of each place."""

    def join(self, loop: tuple[str, str], place: _Place) -> None:
        """Unite the sets of a loop and a place, unless a stage has loops in both."""
        kept = self.of[loop]
        other = self.at.setdefault(place, kept)
        if kept != other and not self.loops[kept].keys() & self.loops[other].keys():
            self.loops[kept] |= self.loops.pop(other)
            self.of |= {key: kept for key, number in self.of.items() if number == other}
            self.at |= {key: kept for key, number in self.at.items() if number == other}


def _moves(
    stages: Sequence[StageView], own: Mapping[str, Sequence[StageLoop]]
) -> Iterator[tuple[str, str, _Place]]:
    """Yield the name of a stage, one of its loops, and a place along which it moves. Tensors that
    stages write are first."""
    written = {view.name for view in stages}
    for view in stages:
        for loop in own[view.name]:
            if not loop.reduce:
                yield view.name, loop.name, (view.name, loop.dim, 0)
    for is_inside in (True, False):
        for view in stages:
            for read in view.reads:
                if (read.tensor in written) == is_inside:
                    yield from _along(view.name, read, own[view.name])


def _along(
    stage: str, read: StageRead, loops: Sequence[StageLoop]
) -> Iterator[tuple[str, str, _Place]]:
    """Yield the loops that move along each dimension of a read, those with the longest steps
    first. Data that select a part of a dimension take longer steps than loops within the part."""
    for dim, index in enumerate(map(unlimited, read.index)):
        steps = {x.name: abs(index.coefficient(x.name) or 1) for x in loops}
        moving = [x.name for x in loops if x.name in index.vars()]
        for rank, loop in enumerate(sorted(moving, key=lambda name: -steps[name])):
            is_within = index.has_data and index.is_linear_in(loop)
            yield stage, loop, (read.tensor, dim, rank + is_within)
