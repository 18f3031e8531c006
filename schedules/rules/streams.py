"""When an output is worth writing past the caches."""

from __future__ import annotations

from ..target import Target
from ..workload import Workload


def stream_values(workload: Workload, tensor: str, target: Target) -> tuple[int, ...]:
    """The values of a knob `stream` for what computes `tensor`: offered for an output that
    nothing reads again and that no core's own caches hold."""
    if tensor not in workload.outputs or workload.consumers(tensor):
        return (0,)
    large = workload.tensors[tensor].bytes > own_cache_bytes(target)
    return (0, 1) if large else (0,)


def own_cache_bytes(target: Target) -> int:
    """The largest cache that a core has to itself."""
    return max((cache.bytes for cache in target.caches if not cache.shared), default=0)
