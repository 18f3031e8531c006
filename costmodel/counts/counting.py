"""Counts of settings. They are computed from plans, leaves and memory use. For programs with
several parts, the counts of the parts are joined."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch

import numpy as np

from tilewright.schedules.arrays import FloatArray, IntArray, Number
from tilewright.schedules.space import Sketch, SpacePart

from .conflicts import conflict_misses
from .copies import copied_bytes
from .latency import contended_lines, exposed_lines
from .nests import nest_counts
from .stalls import stall_counts
from .table import TOTALS, Counts


@singledispatch
def counts(part: SpacePart, settings: IntArray) -> Counts:
    """Return the COUNTS of `settings` of `part`. `settings` has shape (P, J), and each count (P,).

    Parts with precomputed counts, which tests use, register a different implementation.
    """
    settings = np.atleast_2d(settings)
    plan, leaves, memory = part.plan(settings), tuple(part.leaves(settings)), part.memory(settings)
    target, tensors, count = part.target, part.workload.tensors, plan.num_settings
    found, none = nest_counts(leaves, count), np.zeros(count)
    stalls, longer = stall_counts(plan, leaves, memory.distant, target, found["vector_ops"])
    distant = [*memory.distant, *memory.stored]
    stored = sum(tensors[access.buffer].bytes for access in plan.accesses if access.is_output)
    return (
        found
        | stalls
        | copied_bytes(memory.copies, count)
        | {
            "prefetches": _summed(none, (x.prefetches for x in distant if not x.are_near)),
            "near_prefetches": _summed(none, (x.prefetches for x in distant if x.are_near)),
            "conflict_misses": conflict_misses(memory.strided, target, count, 0) * (1.0 + longer),
            "far_conflict_misses": conflict_misses(memory.strided, target, count, 1)
            * (1.0 + longer),
            "exposed_lines": exposed_lines(distant, target.line_bytes, count),
            "contended_lines": contended_lines(plan, target),
            "streamed_bytes": np.broadcast_to(plan.nontemporal, count) * np.float64(stored),
        }
    )


def _summed(none: FloatArray, counts: Iterable[Number]) -> FloatArray:
    """Return the sum of `counts`, shape (P,). `none` is zeros of this shape."""
    return sum((none + count for count in counts), start=none)


def program_counts(sketch: Sketch, settings: IntArray) -> Counts:
    """Return the COUNTS of `settings` of a whole sketch. `settings` has shape (P, J), and each
    count (P,)."""
    own = sketch.split_settings(settings)
    return joined([counts(part, each) for part, each in zip(sketch.parts, own, strict=True)])


def joined(parts: Sequence[Counts]) -> Counts:
    """Return the counts of a program from the counts of its parts.

    TOTALS are summed. SHAPES describe the innermost loop, so they are copied from the part with the
    most operations.
    """
    heaviest = np.argmax([part["flops"] for part in parts], axis=0)
    every = np.arange(len(heaviest))
    each = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    return {
        name: rows.sum(axis=0) if name in TOTALS else rows[heaviest, every]
        for name, rows in each.items()
    }
