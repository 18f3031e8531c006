"""Which earlier stages of a group of stencils are computed inside the expressions of their readers.

A stored stage costs a store and a load for each use; an inlined one is evaluated anew for each
element that its readers read. Reads of the same element in one expression count once.
"""

from __future__ import annotations

from ...algebra.affine import Index
from ...errors import ScheduleError
from ..analysis.stages import StageView, math_calls, view_stages
from ..groups import FusionGroup, Stages

MOST_REPEATED = 2.5
"""Most operations with all stages inlined, relative to one evaluation of each stage, at which the
loads and stores that inlining saves may pay for them."""

Reads = dict[str, set[tuple[str, Index]]]
"""The elements that each stage reads, in terms of its own loops."""


def inlined_variants(
    stages: Stages, group: FusionGroup
) -> tuple[tuple[tuple[str, ...], FusionGroup], ...]:
    """Return the sets of stages to inline, each with the group of the other stages, the most
    promising first: the stages that are cheaper inlined, and all stages if that repeats few
    operations."""
    cheap, every = _chosen(group, everything=False), _chosen(group, everything=True)
    found = [(names, _without(stages, group, names)) for names in dict.fromkeys((cheap, every))]
    legal = tuple((names, one) for names, one in found if names is not None and one is not None)
    return legal or (((), group),)


def _chosen(group: FusionGroup, *, everything: bool) -> tuple[str, ...] | None:
    """Return the stages to inline, in program order. Return None if `everything` shall be inlined
    and that repeats too many operations."""
    reads: Reads = {view.name: {(r.tensor, r.index) for r in view.reads} for view in group.stages}
    left = list(group.stages)
    found: list[str] = []
    done = 0
    for view in reversed(group.producers):
        uses = sum(tensor == view.name for other in left for tensor, _ in reads[other.name])
        done += uses * view.operations
        if everything or _is_cheaper(view, uses):
            left.remove(view)
            found.insert(0, view.name)
            for other in left:
                reads[other.name] = _replaced(reads[other.name], view, reads[view.name])
    once = sum(view.operations for view in group.stages)
    return (
        None if everything and done + group.last.operations > MOST_REPEATED * once else tuple(found)
    )


def _is_cheaper(view: StageView, uses: int) -> bool:
    if uses <= 1:
        return True
    return not math_calls(view.value) and (uses - 1) * view.operations <= uses + 1


def _replaced(
    own: set[tuple[str, Index]], view: StageView, inner: set[tuple[str, Index]]
) -> set[tuple[str, Index]]:
    """Return the reads `own` of a stage after `view`, with the reads `inner`, is inlined into it."""
    found = {read for read in own if read[0] != view.name}
    for tensor, index in own - found:
        at = {loop.name: index[loop.dim] for loop in view.spatial if loop.dim >= 0}
        found |= {(name, tuple(i.substitute(at) for i in read)) for name, read in inner}
    return found


def _without(
    stages: Stages, group: FusionGroup, names: tuple[str, ...] | None
) -> FusionGroup | None:
    """Return the group after the stages `names` are inlined, or None if an expression would become
    too large."""
    if not names:
        return None if names is None else group
    outside = tuple(s.name for s in stages.workload.stages if s.name not in stages.views)
    try:
        views = view_stages(stages.workload, (*outside, *names))
    except ScheduleError:
        return None
    left = tuple(views[view.name] for view in group.producers if view.name not in names)
    return FusionGroup(views[group.last.name], left)
