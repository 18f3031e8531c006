"""Divide reductions of tuples along contiguous axes and of few results into partial results, and
find positions of extremes without a second pass."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import isqrt

from ...dtypes import DType
from ...form import Form
from ...rewrites import LocateExtreme, Rewrite, SearchBlocks, SplitTuples
from ...rewrites.searches import search_of
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


BLOCKED_VECTORS = 128
"""Vectors of a row from which the position of an extreme is searched in one block. In shorter rows,
to combine the lanes of each block takes as long as a second pass over the whole row."""

COMBINED = 36
"""Positions that are searched in the time in which the lanes of one block are combined."""


def locate_extremes(form: Form, target: Target) -> Form:
    """Return `form` with positions of extremes found in about one pass, or `form` itself."""
    return form.apply_until_fixpoint(partial(_searches, target))


def _searches(target: Target, workload: Workload) -> Iterator[Rewrite]:
    """Yield the steps that find positions: in order, if lanes lie across the axis and the positions
    are the only reason to compute the extreme, else in one block of a long row."""
    for stage in workload.stages:
        found = search_of(stage, workload)
        if found is None:
            continue
        extreme, extent = found.best.tensor, found.axis.extent
        readers = [reader.name for reader in workload.consumers(extreme)]
        lanes = min(target.lanes(found.value.dtype), target.lanes(DType.I32))
        if has_lanes(view_stage(workload, extreme), lanes):
            if extreme not in workload.outputs and readers == [stage.name]:
                yield LocateExtreme(stage.name)
        elif extent >= BLOCKED_VECTORS * lanes > BLOCKED_VECTORS:
            yield SearchBlocks(
                stage.name, _block_length(extent, VECTORS[1] * target.lanes(DType.I32))
            )


def _block_length(extent: int, unit: int) -> int:
    """Return the number of positions of a block, a multiple of `unit`, for which all blocks are
    combined in the time in which one is searched."""
    return -(-isqrt(COMBINED * extent) // unit) * unit


def has_lanes(view: StageView, lanes: int) -> bool:
    """Return whether all reads are contiguous or constant along an output axis of at least `lanes`
    positions."""
    return any(
        loop.extent >= lanes
        and all(read.element_stride(loop.name) in (0, 1) for read in view.reads)
        for loop in view.spatial
    )
