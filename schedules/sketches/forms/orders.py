"""Choose another vector axis for a reduction if its last axis is unsuitable.

A convolution with channels before rows has windows along its last axis. With a stride or circular
padding, neighbours along that axis are not contiguous, while neighbours along the channels can be
packed. The last axis is also unsuitable if it fills a fraction of a vector and another axis is
contiguous in the operands. The stage is then computed with the other axis last, and the result is
transposed. So is a sum whose operand is contiguous along another axis of the result. If no axis is
suitable because there are few channels, the phases of a transposed convolution are computed apart
along the last axis, and the result is interleaved.
"""

from __future__ import annotations

from math import prod

from ...algebra.scalar import Load
from ...errors import ScheduleError
from ...rewrites import Deinterleave, PermuteAxes
from ...target import Target
from ...workload.tensors import Stage
from ...workload.workload import Workload
from ..analysis.reductions import contiguous_reduction
from ..analysis.stages import StageRead, StageView, view_stage
from ..analysis.tile_roles import assign_roles


def permute_axes(workload: Workload, target: Target) -> tuple[PermuteAxes | Deinterleave, ...]:
    """Return the rewrites of all stages of `workload` that have a more suitable vector axis than
    the last. `workload` is in normal form."""
    steps: list[PermuteAxes | Deinterleave] = []
    for _ in range(sum(stage.is_reduction for stage in workload.stages)):
        found = (_step(workload, stage, target) for stage in workload.stages)
        step = next((step for step in found if step), None)
        if step is None:
            break
        steps.append(step)
        workload = step.rewrite(workload)
    return tuple(steps)


def _step(workload: Workload, stage: Stage, target: Target) -> PermuteAxes | Deinterleave | None:
    if not stage.is_reduction or len(stage.axes) < 2:
        return None
    view = view_stage(workload, stage.name)
    last = stage.axes[-1].extent
    lanes = target.lanes(view.dtype)
    if last == 1 or not view.spatial:
        return None
    if _windows_along_columns(view):
        dims = [d for d in range(len(stage.axes) - 1) if _can_be_packed(view, d, lanes)]
        if not dims and view.reuse <= 1 and contiguous_reduction(view) is None:
            dims = [d for d in range(len(stage.axes) - 1) if _is_contiguous(view, d, lanes)]
    elif 2 * last <= lanes:
        dims = [d for d in range(len(stage.axes) - 1) if _is_contiguous(view, d, lanes)]
    else:
        return None
    for dim in sorted(dims, key=lambda d: -stage.axes[d].extent):
        step = PermuteAxes(stage.name, dim)
        if _is_tiled(workload, stage, step):
            return step
    phases = [loop.extent for loop in view.spatial if loop.dim == len(stage.axes) - 1][1:]
    if phases and _windows_along_columns(view):
        apart = Deinterleave(stage.name, prod(phases))
        return apart if _is_tiled(workload, stage, apart) else None
    return None


def _is_tiled(workload: Workload, stage: Stage, step: PermuteAxes | Deinterleave) -> bool:
    """Return whether `step` is legal and the tile sketch matches its result."""
    try:
        new = step.rewrite(workload)
    except ScheduleError:
        return False
    copied = {load.tensor for s in new.stages if isinstance(load := s.body, Load)}
    found = [s.name for s in new.stages if s.is_reduction and s.name in copied]
    return bool(found) and all(assign_roles(view_stage(new, name)) is not None for name in found)


def _windows_along_columns(view: StageView) -> bool:
    """Return whether neighbours along the last axis can be neither loaded as a vector nor packed as
    a panel. The reason is that the axis is divided, or shares a dimension with a window."""
    column = view.spatial[-1].name
    reads = [read for read in view.reads if read.uses(column)]
    return assign_roles(view) is None or any(read.own_dim(column) is None for read in reads)


def _users(view: StageView, dim: int, lanes: int) -> tuple[str, list[StageRead]]:
    """Return the innermost loop of output dimension `dim` and the reads that use it. Return "" and
    no reads if the loop is too short for vectors."""
    loops = [loop for loop in view.spatial if loop.dim == dim]
    if not loops or 2 * loops[-1].extent < lanes:
        return "", []
    return loops[-1].name, [read for read in view.reads if read.uses(loops[-1].name)]


def _can_be_packed(view: StageView, dim: int, lanes: int) -> bool:
    """Return whether all reads that use the loop of dimension `dim` can be packed along it, and
    other reads are reused for each vector."""
    loop, users = _users(view, dim, lanes)
    plain = all(read.own_dim(loop) is not None for read in users)
    return bool(users) and plain and len(users) < len(view.reads)


def _is_contiguous(view: StageView, dim: int, lanes: int) -> bool:
    """Return whether the largest read that uses the loop of dimension `dim` is contiguous along
    it."""
    loop, users = _users(view, dim, lanes)
    return bool(users) and max(users, key=lambda r: prod(r.shape)).element_stride(loop) == 1
