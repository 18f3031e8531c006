"""Outputs that other stages of a group of stencils read, as copies of stages of the group."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ..errors import ScheduleError
from ..form import Form
from ..rewrites import CopyOutput
from ..target import Target
from ..workload.workload import Workload
from .groups import stages_of
from .inlining import stages_inlined
from .rules import covers
from .stencils.sketch import StencilSketch


def copied_outputs(form: Form, target: Target) -> Form:
    """Return `form` with copies for outputs, if all readers of such an output are then computed in
    tiles with it. Return `form` itself if there are none."""
    return form.apply_until_fixpoint(partial(_copies, target))


def _copies(target: Target, workload: Workload) -> Iterator[CopyOutput]:
    """Yield the rewrites, those of the last stages first."""
    read = [x for x in workload.stages if x.name in workload.outputs and workload.consumers(x.name)]
    together = _tiled_together(workload, target) if read else ()
    for stage in reversed(read):
        if any(stage.name in names for names in together):
            continue  # readers read it at their own positions only
        step = CopyOutput(stage.name)
        try:
            copied = step.rewrite(workload)
        except ScheduleError:
            continue
        copy = copied.outputs[workload.outputs.index(stage.name)]
        if any(copy in names for names in _tiled_together(copied, target)):
            yield step


def _tiled_together(workload: Workload, target: Target) -> tuple[frozenset[str], ...]:
    """Return the stages of each group of stencils with several results. Stages that are inlined are
    not listed."""
    stages = stages_of(workload, stages_inlined(workload), target)
    groups = (sketch.group for sketch, *_ in covers(stages)[0] if isinstance(sketch, StencilSketch))
    return tuple(
        frozenset(view.name for view in group.stages) for group in groups if group.more_results
    )
