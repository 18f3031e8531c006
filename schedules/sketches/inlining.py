"""Which elementwise stages are computed where they are read, with no group of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..algebra.scalar import Load, Reducer, Scalar, children, loads
from ..limits import MAX_INLINED_DEPTH
from ..workload.tensors import Stage
from ..workload.workload import Workload
from .analysis import math_calls
from .phases import inserts_zeros, is_padding

MOST_NODES_INLINED = 256
"""Operations of an expression with all that is computed inside it. Each use of a stage is a copy,
which the code generator finds to be one value, but everything before it has to go through."""


def stages_inlined(workload: Workload) -> tuple[str, ...]:
    """Elementwise stages that are cheaper to compute where they are read, in program order."""
    found: dict[str, _Size] = {}
    outputs = set(workload.outputs)
    for stage in workload.stages:
        if stage.reducer is not None or stage.name in outputs:
            continue
        readers = workload.consumers(stage.name)
        times = sum(
            _points(reader) * sum(1 for ld in loads(reader.body) if ld.tensor == stage.name)
            for reader in readers
        )
        cheap = math_calls(stage.body) == 0 and len(loads(stage.body)) <= 2
        again = times / max(_points(stage), 1)
        summed = all(r.reducer is Reducer.SUM for r in readers)
        zeros = summed and (inserts_zeros(stage) or is_padding(stage))
        if again <= 1.0 or (cheap and again <= 3.0) or zeros:
            grown = {**found, stage.name: _size_with(stage.body, found)}
            if all(_size_with(reader.body, grown).is_small for reader in readers):
                found = grown
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Size:
    """Operations and levels of an expression."""

    nodes: int
    depth: int

    @property
    def is_small(self) -> bool:
        return self.nodes <= MOST_NODES_INLINED and self.depth <= MAX_INLINED_DEPTH // 2


def _size_with(body: Scalar, inside: Mapping[str, _Size]) -> _Size:
    """The size of `body` with the stages `inside` it, without putting them there."""
    if isinstance(body, Load):
        return inside.get(body.tensor, _Size(1, 1))
    below = [_size_with(child, inside) for child in children(body)]
    return _Size(
        1 + sum(size.nodes for size in below), 1 + max((size.depth for size in below), default=0)
    )


def _points(stage: Stage) -> int:
    total = 1
    for axis in (*stage.axes, *stage.reduce_axes):
        total *= axis.extent
    return total
