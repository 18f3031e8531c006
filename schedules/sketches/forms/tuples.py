"""Divide reductions of tuples along contiguous axes and of few results into partial results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...dtypes import DType
from ...form import Form
from ...rewrites import LocateExtreme, SplitTuples
from ...rewrites.locate_extreme import search_of
from ...target import Target
from ...workload.tensors import TupleReduction
from ...workload.workload import Workload
from ..analysis.stages import SHORT_AXIS, StageView, view_stage

VECTORS = (8, 4, 1)
"""Vectors of partial results: the first number for which each vector combines `LEAST_STEPS` tuples
or more. Several vectors hide the latency of a combination; to combine them at the end takes longer.
"""

LEAST_STEPS = (32, SHORT_AXIS, 4)


def split_tuples(form: Form, target: Target) -> Form:
    """Return `form` with all reductions of tuples divided that have no axis for lanes, or `form`
    itself if there are none."""
    if not any(isinstance(stage.kind, TupleReduction) for stage in form.workload.stages):
        return form
    return form.apply_until_fixpoint(partial(_divisions, target))


def _divisions(target: Target, workload: Workload) -> Iterator[SplitTuples]:
    """Yield the steps that give a reduction an axis for lanes: interleaved parts if the combination
    is commutative, else blocks if there are fewer results than lanes."""
    for stage in workload.stages:
        kind = stage.kind
        if not isinstance(kind, TupleReduction):
            continue
        lanes = min(target.lanes(identity.dtype) for identity in kind.identities)
        view = view_stage(workload, stage.name)
        extent = kind.axes[-1].extent
        if lanes < 2 or has_lanes(view, lanes):
            continue
        pairs = zip(VECTORS, LEAST_STEPS, strict=True)
        parts = [lanes * n for n, steps in pairs if extent >= steps * n * lanes]
        if kind.commutative and parts:
            yield SplitTuples(stage.name, parts[0], True)
        elif view.outputs < lanes and extent >= SHORT_AXIS * lanes:
            yield SplitTuples(stage.name, lanes)


def locate_extremes(form: Form, target: Target) -> Form:
    """Return `form` with positions of extremes found in one pass where that saves reading data
    again from beyond the private caches, or `form` itself."""
    return form.apply_until_fixpoint(partial(_searches, target))


def _searches(target: Target, workload: Workload) -> Iterator[LocateExtreme]:
    """Yield the steps for positions that are the only reason to compute the extreme: in order, if
    lanes lie across the axis, else for rows that do not fit a private cache."""
    for stage in workload.stages:
        found = search_of(stage, workload)
        if found is None or found.extreme in workload.outputs:
            continue
        if [reader.name for reader in workload.consumers(found.extreme)] != [stage.name]:
            continue
        lanes = min(target.lanes(found.value.dtype), target.lanes(DType.I32))
        view = view_stage(workload, found.extreme)
        if has_lanes(view, lanes):
            yield LocateExtreme(stage.name)
        elif 2 * found.axis.extent * found.value.dtype.bytes > target.own_cache_bytes:
            yield LocateExtreme(stage.name, VECTORS[0] * lanes)


def has_lanes(view: StageView, lanes: int) -> bool:
    """Return whether all reads are contiguous or constant along an output axis of at least `lanes`
    positions."""
    return any(
        loop.extent >= lanes
        and all(read.element_stride(loop.name) in (0, 1) for read in view.reads)
        for loop in view.spatial
    )
