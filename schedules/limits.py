"""Sizes a workload may have, checked with Python's integers before anything is allocated."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from .algebra.scalar import All, IndexValue, Load, Scalar, walk
from .errors import WorkloadError

if TYPE_CHECKING:
    from .workload.workload import Workload

MAX_DIMS = 8
MAX_STAGES = 64
MAX_INPUTS = 64
MAX_EXTENT = 2**31 - 1
MAX_INDEX_CONST = 2**31 - 1
MAX_CONDS = 24
"""Conditions of one guard: two bounds and a divisibility for each of 8 dimensions."""

MAX_ALL_CONDS = 512
"""Conditions of a workload: each one is proved needed, which takes some 100 us."""

MAX_BODY_DEPTH = 56
"""Levels of one expression: with what is around it, a document of at most `MAX_JSON_DEPTH`."""

MAX_JSON_DEPTH = 64
MAX_JSON_NODES = 10_000
MAX_JSON_BYTES = 1 << 20

MAX_INLINED_NODES = MAX_JSON_NODES
MAX_INLINED_DEPTH = 128
"""Operations and levels of a body once other stages are computed inside it. Each use of a stage is
a copy: a chain of n stages that use the one before twice would have 2**n of them."""

MAX_BYTES = 2**48
"""All tensors of a workload together: what an address can name on today's machines."""


def footprint_bytes(workload: Workload) -> int:
    """Bytes of every tensor of `workload`, arguments and intermediate stages alike."""
    return sum(t.bytes for t in workload.tensors.values())


def iterations(workload: Workload) -> int:
    """Points of all stages' axes and reduction axes together: how often a body is evaluated."""
    return sum(prod(a.extent for a in (*s.axes, *s.reduce_axes)) for s in workload.stages)


def check_limits(workload: Workload, *, max_bytes: int, max_iterations: int | None = None) -> None:
    """WorkloadError "too_large" if the tensors need more than `max_bytes`, or a call more work.

    Call it before anything is allocated: it only multiplies.
    """
    found = footprint_bytes(workload)
    if found > max_bytes:
        largest = max(workload.tensors.values(), key=lambda t: t.bytes)
        raise WorkloadError(
            f"the tensors need {found} bytes, at most {max_bytes} are allowed"
            f" (largest: {largest.name}, {largest.bytes} bytes)",
            code="too_large",
        )
    points = iterations(workload)
    if max_iterations is not None and points > max_iterations:
        raise WorkloadError(
            f"one call evaluates {points} points, at most {max_iterations} are allowed",
            code="too_large",
        )


def json_nodes(node: Scalar) -> int:
    """JSON values (objects, arrays and leaves) that `node` takes in a document."""
    total = 0
    for n in walk(node):
        total += 2
        match n:
            case Load():
                total += 2 + len(n.index)
            case IndexValue():
                total += 2
            case All():
                total += 1 + len(n.conds)
            case _:
                total += 2
    return total
