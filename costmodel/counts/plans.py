"""What a part's counts are made of: its leaves, or the levels of its plan."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray
from tilewright.schedules.plan import Access, Plan
from tilewright.schedules.space import SpacePart

from ..footprint import reached
from .nests import nest_counts
from .table import Counts


def plan_counts(part: SpacePart, settings: IntArray) -> Counts:
    """See the module. Settings that are there more than once are counted once."""
    settings = np.atleast_2d(settings)
    sizes = [len(knob.values) for knob in part.knobs]
    numbers = np.ravel_multi_index(tuple(settings.T), sizes) if sizes else np.zeros(len(settings))
    _, first, places = np.unique(numbers, return_index=True, return_inverse=True)
    found = _of_leaves(part, settings[first])
    return {name: values[places] for name, values in found.items()}


def _of_leaves(part: SpacePart, settings: IntArray) -> Counts:
    plan = part.plan(settings)
    found = nest_counts(tuple(part.leaves(settings)), plan.num_settings)
    tensors = part.workload.tensors
    written = sum(tensors[access.buffer].bytes for access in plan.accesses if access.is_output)
    found["streamed_bytes"] = np.broadcast_to(plan.nontemporal, plan.num_settings) * np.float64(
        written
    )
    return found


def _moves(access: Access, axis: int) -> bool:
    return any(strides[axis] for strides in access.strides)


def copied(plan: Plan, access: Access, place: IntArray) -> tuple[Sequence[FloatArray], FloatArray]:
    """A copy of what each iteration of the level at `place` (P,) reads: for each dimension (P,)
    elements, nothing that a stride leaves out; and (P,) how many copies are made. All are of whole
    pieces, whatever the last one has."""
    reach = [
        _below(plan, axis, place) if _moves(access, axis) else np.ones(plan.num_settings)
        for axis in range(len(plan.outline.axes))
    ]
    sides = [reached(strides, reach, walked=True) for strides in access.strides]
    outside = np.arange(len(plan.levels)) <= place[:, None]
    return sides, np.where(outside, plan.trips, 1).prod(axis=1).astype(np.float64)


def _below(plan: Plan, axis: int, place: IntArray) -> FloatArray:
    """(P,) how far `axis` runs in an iteration of the level at `place` (P,): a step of the last
    level from there outward, or all pieces of the first one that is inside."""
    own = [n for n, level in enumerate(plan.levels) if level.axis == axis]
    outside, inside = (
        np.zeros(plan.num_settings),
        np.full(plan.num_settings, plan.outline.axes[axis].extent),
    )
    for n in own:
        level = plan.levels[n]
        outside = np.where(level.present & (place >= n), level.step, outside)
    if (outside == 0).any():
        for n in reversed(own):
            level = plan.levels[n]
            inside = np.where(level.present, plan.trips[:, n] * level.step, inside)
    return np.asarray(np.where(outside > 0, outside, inside), np.float64)
