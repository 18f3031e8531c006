"""Divide reductions of tuples along contiguous axes and of few results into partial results."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...form import Form
from ...rewrites import SplitTuples
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


def has_lanes(view: StageView, lanes: int) -> bool:
    """Return whether all reads are contiguous or constant along an output axis of at least `lanes`
    positions."""
    return any(
        loop.extent >= lanes
        and all(read.element_stride(loop.name) in (0, 1) for read in view.reads)
        for loop in view.spatial
    )
