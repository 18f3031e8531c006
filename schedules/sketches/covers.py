"""Covers of a program: fusion groups that have every stage once, with the sketches that fit each.

Stages are looked at from the last to the first. The first cover takes the likeliest group of each;
where a group is in doubt, another cover leaves its stages apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from .analysis import StageView
from .groups import Doubt, Fit, Stages
from .knobs import PartSketch
from .rules import ALONE, DOUBTS, FUSING

Cover = list[tuple[PartSketch, ...]]
"""For each group, in program order, sketches that fit it, the likeliest first."""


def covers(stages: Stages) -> list[Cover]:
    """The covers of all stages, the likeliest first."""
    first = _groups(stages, None)
    doubts = {fit.doubt for fit in first}
    others = (_groups(stages, doubt) for doubt in DOUBTS if doubt in doubts)
    return [[fit.parts for fit in groups] for groups in (first, *others)]


def _groups(stages: Stages, doubt: Doubt | None) -> list[Fit]:
    """The groups of one cover, without those for which there is this doubt."""
    found: list[Fit] = []
    left = list(stages.left)
    while left:
        view = stages.views[left.pop()]
        fit = _group(stages.before(left), view, doubt)
        for name in fit.inside:
            left.remove(name)
        found.insert(0, fit)
    return found


def _group(stages: Stages, view: StageView, doubt: Doubt | None) -> Fit:
    """The likeliest group of `view` with stages left before it, or all there is for it alone."""
    for rule in FUSING:
        fit = rule(view, stages)
        if fit is not None and (doubt is None or fit.doubt is not doubt):
            return fit
    meant = doubt.instead(view, stages) if doubt and doubt.instead else None
    alone = [meant] if meant else [rule(view, stages) for rule in ALONE]
    return Fit(tuple(part for fit in alone if fit for part in fit.parts))


def likeliest(ways: list[Cover]) -> Iterator[tuple[PartSketch, ...]]:
    """Combinations of the groups' sketches, by how far they are from the likeliest ones in sum: the
    second choice of any group comes before the third of another."""
    for total in count():
        for cover in ways:
            yield from _of_rank(cover, total)
        if all(total >= sum(len(parts) - 1 for parts in cover) for cover in ways):
            return


def _of_rank(cover: Cover, total: int) -> Iterator[tuple[PartSketch, ...]]:
    """Combinations whose places in the lists add up to `total`; later groups change first."""
    if not cover:
        if total == 0:
            yield ()
        return
    most_later = sum(len(parts) - 1 for parts in cover[1:])
    for place, part in enumerate(cover[0][: total + 1]):
        if total - place <= most_later:
            yield from ((part, *others) for others in _of_rank(cover[1:], total - place))
