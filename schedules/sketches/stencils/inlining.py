"""Which earlier stages of a group of stencils are computed inside the expressions of their readers.

A stored stage costs a store and a load for each use; an inlined one is evaluated anew for each
element that its readers read. Reads of the same element in one expression count once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...algebra.affine import Index
from ...errors import ScheduleError
from ..analysis.stages import StageView, math_calls, view_stages
from ..groups import FusionGroup, Stages

MOST_REPEATED = 2.5
"""Most operations with all stages inlined, relative to one evaluation of each stage, at which the
loads and stores that inlining saves may pay for them."""

Chooses = Callable[[StageView, int], bool]
"""Decides whether a stage with so many uses is inlined."""

Reads = dict[str, set[tuple[str, Index]]]
"""The elements that each stage reads, in terms of its own loops."""


def inlined_variants(
    stages: Stages, group: FusionGroup
) -> tuple[tuple[tuple[str, ...], FusionGroup], ...]:
    """Return the sets of stages to inline, each with the group of the other stages, the most
    promising first: the stages that are cheaper inlined, those that are used once, and all stages
    if that repeats few operations."""
    ways: tuple[Chooses, ...] = (_is_cheaper, _is_used_once, _always)
    chosen = dict.fromkeys(_chosen(group, way) for way in ways)
    found = [(names, _without(stages, group, names)) for names in chosen if names is not None]
    legal = tuple((names, one) for names, one in found if one is not None)
    return legal or (((), group),)


def _chosen(group: FusionGroup, way: Chooses) -> tuple[str, ...] | None:
    """Return the stages to inline, in program order. `way(stage, uses)` decides for each stage,
    after its readers. Return None if too many operations are repeated."""
    reads: Reads = {view.name: {(r.tensor, r.index) for r in view.reads} for view in group.stages}
    left = list(group.stages)
    found: list[str] = []
    repeated = sum(view.operations for view in group.stages)
    most = MOST_REPEATED * repeated
    for view in reversed(group.intermediates):
        uses = sum(tensor == view.name for other in left for tensor, _ in reads[other.name])
        if not view.is_reduction and way(view, uses):
            repeated += (uses - 1) * view.operations
            if repeated > most:
                return None
            left.remove(view)
            found.insert(0, view.name)
            for other in left:
                reads[other.name] = _replaced(reads[other.name], view, reads[view.name])
    return tuple(found)


def _is_used_once(view: StageView, uses: int) -> bool:
    return uses <= 1


def _always(view: StageView, uses: int) -> bool:
    return True


def _is_cheaper(view: StageView, uses: int) -> bool:
    if uses <= 1:
        return True
    return not math_calls(view.value) and (uses - 1) * view.operations <= uses + 1


def _replaced(
    own: set[tuple[str, Index]], view: StageView, inner: set[tuple[str, Index]]
) -> set[tuple[str, Index]]:
    """Return the reads `own` of a stage after `view`, whose reads are `inner`, is inlined."""
    found = {read for read in own if read[0] != view.name}
    for _, index in own - found:
        at = {loop.name: index[loop.dim] for loop in view.spatial if loop.dim >= 0}
        found |= {(name, tuple(i.substitute(at) for i in read)) for name, read in inner}
    return found


def _without(stages: Stages, group: FusionGroup, names: tuple[str, ...]) -> FusionGroup | None:
    """Return the group after the stages `names` are inlined, or None if an expression would become
    too large."""
    if not names:
        return group
    try:
        views = view_stages(stages.workload, (*stages.inlined, *names))
    except ScheduleError:
        return None
    rest = replace(stages, views=views)
    last, *others = (
        rest.unsplit(views[x.name]) for x in (group.last, *group.producers) if x.name in views
    )
    return replace(group, last=last, producers=tuple(others))
