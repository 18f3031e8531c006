"""When an output is worth writing past the caches."""

from __future__ import annotations

from ..target import Target
from ..workload.workload import Workload


def stream_values(
    workload: Workload, tensor: str, target: Target, flat: bool = False
) -> tuple[int, ...]:
    """The values of a knob `stream` for what computes `tensor`: offered for an output that
    nothing reads again and that no core's own caches hold. Rows must begin where vectors do, since
    others are not streamed, unless it may be walked as one row (`flat`)."""
    if tensor not in workload.outputs or workload.consumers(tensor):
        return (0,)
    if not (flat or has_aligned_rows(workload, tensor, target)):
        return (0,)
    large = workload.tensors[tensor].bytes > target.own_cache_bytes
    return (0, 1) if large else (0,)


def has_aligned_rows(workload: Workload, tensor: str, target: Target) -> bool:
    """Whether every row begins at a multiple of a vector, if the first one does."""
    found = workload.tensors[tensor]
    if len(found.shape) < 2:
        return True
    return found.shape[-1] * found.dtype.bytes % (target.vector_bits // 8) == 0


def streams_pay(workload: Workload, target: Target) -> bool:
    """Whether all arguments together leave little room in the last cache."""
    last = max((cache.bytes for cache in target.caches), default=0)
    total = sum(tensor.bytes for tensor in workload.arguments)
    return total > 0.75 * last > 0
