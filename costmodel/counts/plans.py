"""Counts of a part that nothing else is known of than its plan.

A kind of part has these until it is counted better, so that a new kind is one file. Every iteration
of all levels computes one point: `operations` of them, in vectors of `lanes` along the innermost
level. What a level does not move is loaded outside of it, and stored behind it.
"""

from __future__ import annotations

import numpy as np

from schedules.arrays import FloatArray, IntArray
from schedules.plan import Access, Plan
from schedules.space import Part

from .table import Counts, with_zeros


def plan_counts(part: Part, settings: IntArray) -> Counts:
    """See the module."""
    plan = part.plan(settings)
    trips = plan.trips.astype(np.float64)
    trips[:, -1] = np.ceil(trips[:, -1] / plan.lanes)
    vectors = trips.prod(axis=1)
    tasks = shared_iterations(plan)
    inputs = [access for access in plan.accesses if not access.is_output]
    outputs = [access for access in plan.accesses if access.is_output]
    found = {
        "flops": vectors * plan.lanes * plan.outline.operations,
        "vector_ops": vectors * plan.outline.operations,
        "vector_loads": sum((_times(plan, trips, a) for a in inputs), np.zeros_like(vectors)),
        "vector_stores": sum((_times(plan, trips, a) for a in outputs), np.zeros_like(vectors)),
        "live_registers": np.full_like(vectors, len(plan.accesses) + 1.0),
        "inner_trips": trips[:, -1],
        "inner_entries": vectors / np.maximum(trips[:, -1], 1.0),
        "code_ops": np.full_like(vectors, plan.outline.operations + len(plan.accesses)),
        "tasks": tasks,
        "regions": (tasks > 1.0).astype(np.float64),
    }
    return with_zeros(found)


def shared_iterations(plan: Plan) -> FloatArray:
    """(P,) iterations of the levels that threads share; 1 where none is."""
    tasks = np.ones(plan.settings)
    for level, trips in zip(plan.levels, plan.trips.T, strict=True):
        tasks *= np.where(level.is_shared, trips, 1)
    return tasks


def _times(plan: Plan, trips: FloatArray, access: Access) -> FloatArray:
    """(P,) vectors of `access` that are loaded or stored: once in each iteration of the levels down
    to the innermost that moves it."""
    moving = [n for n, level in enumerate(plan.levels) if _moves(access, level.axis)]
    return np.asarray(trips[:, : max(moving, default=-1) + 1].prod(axis=1))


def _moves(access: Access, axis: int) -> bool:
    return any(strides[axis] for strides in access.strides)
