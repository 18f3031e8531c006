"""Which elementwise stages are inlined into their readers instead of being a group of their own."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ..algebra.scalar import Load, Reducer, Scalar, children, loads
from ..limits import MAX_INLINED_DEPTH
from ..workload.tensors import Stage
from ..workload.workload import Workload
from .analysis.phases import inserts_zeros, is_padding
from .analysis.stages import math_calls


def stages_inlined(workload: Workload) -> tuple[str, ...]:
    """Elementwise stages that are cheaper to inline than to store, in program order. Each use of an
    inlined stage is a copy of its expression: the code generator computes it once, but all passes
    before it see the copies, so the size of expressions is limited."""
    sizes: dict[str, int] = {}
    for stage in workload.stages:
        if not stage.is_elementwise or stage.name in workload.outputs:
            continue
        readers = workload.consumers(stage.name)
        times = sum(
            _points(reader) * sum(1 for ld in loads(reader.body) if ld.tensor == stage.name)
            for reader in readers
        )
        # As a tensor of its own it is read once, written once, and read again for each use.
        again, own = times / max(_points(stage), 1), max(len(loads(stage.body)), 2)
        cheap = math_calls(stage.body) == 0 and again * own <= own + 1 + again
        summed = all(r.reduces_by(Reducer.SUM) for r in readers)
        zeros = summed and (inserts_zeros(stage) or is_padding(stage))
        if again <= 1.0 or cheap or zeros:
            grown = {**sizes, stage.name: _size_with(stage.body, sizes)}
            if all(_size_with(reader.body, grown) < MAX_INLINED_DEPTH for reader in readers):
                sizes = grown
    return tuple(sizes)


def _size_with(body: Scalar, inside: Mapping[str, int]) -> int:
    """Operations of `body` after inlining the stages in `inside`."""
    if isinstance(body, Load):
        return inside.get(body.tensor, 1)
    return 1 + sum(_size_with(child, inside) for child in children(body))


def _points(stage: Stage) -> int:
    return prod(axis.extent for axis in stage.all_axes)
