"""Several results of one group of stencils: outputs that read the same data, one tile of all of
them at a time."""

from __future__ import annotations

from math import prod

from ..analysis.stages import SHORT_AXIS, StageView
from ..groups import FusionGroup, Stages, is_loop

LEAST_SHARED = 0.5
"""Least size of a tensor that two results share, relative to the results."""


def is_further_result(view: StageView, group: FusionGroup, stages: Stages) -> bool:
    """Return whether tiles of the local stage `view` can be computed with those of the results of
    `group`, in the same loops, and read the same data.

    It is an output of about the same extents, and only results read it, at their own positions: a
    tile of it is complete where it is read. Reads of all results go through tensors along the axes
    in order.
    """
    if view.name not in stages.workload.outputs or view.spatial[-1].extent < SHORT_AXIS:
        return False
    results = group.results
    if not all(_are_alike(view, other) and _is_in_order(other) for other in (view, *results)):
        return False
    names = {other.name for other in results}
    readers = stages.readers[view.name]
    if not all(one.name in names and _reads_own(one, view.name) for one in readers):
        return False
    least = LEAST_SHARED * view.outputs
    large = {x for x in _sources(view, stages) if prod(stages.workload.tensors[x].shape) >= least}
    return any(large & {other.name, *_sources(other, stages)} for other in results)


def _are_alike(view: StageView, other: StageView) -> bool:
    """Return whether two stages have the same number of axes, of about the same extents."""
    if len(view.spatial) != len(other.spatial):
        return False
    pairs = [(x.extent, y.extent) for x, y in zip(view.spatial, other.spatial, strict=True)]
    return all(2 * abs(m - n) < max(m, n) for m, n in pairs)


def _is_in_order(view: StageView) -> bool:
    """Return whether the axes of `view` are in the same order in all tensors that it reads."""
    place = {loop.name: n for n, loop in enumerate(view.spatial)}
    for read in view.reads:
        axes = [sorted(place[name] for name in i.vars() & place.keys()) for i in read.index]
        order = [axis for own in axes for axis in own]
        if order != sorted(set(order)):
            return False
    return True


def _reads_own(reader: StageView, tensor: str) -> bool:
    """Return whether `reader` reads `tensor` at its own positions only."""
    reads = (read.index for read in reader.reads if read.tensor == tensor)
    return all(
        len(index) == len(reader.spatial) and all(map(is_loop, index, reader.spatial))
        for index in reads
    )


def _sources(view: StageView, stages: Stages) -> set[str]:
    """Return the tensors that `view` reads, and those that the stages before it read for it."""
    found = set[str]()
    pending = [view]
    while pending:
        new = {read.tensor for read in pending.pop().reads} - found
        found |= new
        pending += [stages.views[name] for name in new if name in stages.left]
    return found
