"""Merge the axes of stages whose last axis is unsuitable for vectors.

A last axis that is short, or no multiple of the lanes, leaves a part of the lanes of each row
unused, and its loops have few iterations. If the axis before it always lies next to it, the two are
one longer axis, for example the pixels of an image in stages that treat all pixels alike. Windows
that slide along the axis before slide along the merged axis in larger steps, as windows of RGB
pixels do. That pays for short axes only: a tile of several rows shares the rows of its windows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ...form import Form
from ...rewrites import MergeAxes
from ...target import Target
from ...workload.workload import Workload
from ..analysis.stages import SHORT_AXIS


def merge_axes(form: Form, target: Target) -> Form:
    """Return `form` with all unsuitable last axes merged with the axes before them, as often as
    this is legal. Return `form` itself if there are none."""
    return form.apply_until_fixpoint(partial(_longer_last_axes, target))


def _longer_last_axes(target: Target, workload: Workload) -> Iterator[MergeAxes]:
    """Yield the steps, legal or not, that make an unsuitable last axis of a stage longer."""
    for stage in workload.stages:
        if len(stage.axes) < 2:
            continue
        outer, inner = stage.axes[-2:]
        lanes = target.lanes(stage.tensor.dtype)
        short = inner.extent < SHORT_AXIS * lanes
        step = MergeAxes(stage.name, outer.name, inner.name)
        if outer.extent > 1 and (short or (inner.extent % lanes and not step.slides(workload))):
            yield step
