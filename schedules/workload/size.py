"""Size limits of a computation, checked in exact integers before anything is allocated."""

from __future__ import annotations

from math import prod

from ..algebra.scalar import All, IndexValue, Load, Scalar, walk
from ..errors import WorkloadError
from .computation import Computation


def footprint_bytes(computation: Computation) -> int:
    """Return the bytes of all tensors of `computation`, intermediate stages included."""
    return sum(t.bytes for t in computation.tensors.values())


def iterations(computation: Computation) -> int:
    """Return the number of body evaluations in one call, summed over all stages."""
    return sum(prod(a.extent for a in s.all_axes) for s in computation.stages)


def check_limits(
    computation: Computation, *, max_bytes: int, max_iterations: int | None = None
) -> None:
    """Raise WorkloadError "too_large" if the tensors need more than `max_bytes` or a call evaluates
    bodies more than `max_iterations` times. Nothing is allocated."""
    found = footprint_bytes(computation)
    if found > max_bytes:
        largest = max(computation.tensors.values(), key=lambda t: t.bytes)
        raise WorkloadError(
            f"the tensors need {found} bytes, at most {max_bytes} are allowed"
            f" (largest: {largest.name}, {largest.bytes} bytes)",
            code="too_large",
        )
    points = iterations(computation)
    if max_iterations is not None and points > max_iterations:
        raise WorkloadError(
            f"one call evaluates {points} points, at most {max_iterations} are allowed",
            code="too_large",
        )


def json_nodes(node: Scalar) -> int:
    """Return the number of JSON values (objects, arrays, leaves) of `node` in a document."""
    total = 0
    for n in walk(node):
        total += 2
        match n:
            case Load():
                total += 2 + len(n.index) + sum(len(i.data()) for i in n.index)
            case IndexValue():
                total += 2
            case All():
                total += 1 + len(n.conds)
            case _:
                total += 2
    return total
