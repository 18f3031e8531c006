"""What sketches say of their settings, held against the nests that these are lowered to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.costmodel.footprint import cache_traffic
from tilewright.schedules.plan import Plan
from tilewright.schedules.workload.workload import Workload

from .drawing import Counted
from .program import program
from .recount import recount

ROUNDING = 1e-6
"""Numbers that differ in a smaller share are equal: counts are made in floating point."""

BOUNDS = {
    "flops": 1.25, "vector_ops": 1.25, "vector_loads": 1.25, "math_calls": 1.25,
    "live_registers": 1.25, "kept_values": 1.5, "code_ops": 1.5,
    "inner_trips": 1.5, "inner_entries": 1.5, "footprint": 1.25,
}  # fmt: skip
"""How many times too large or too small a count may be; those not named are exact."""

EXACT = (
    "vector_stores", "tasks", "regions", "packed_bytes", "strided_packed_bytes",
    "transposed_packed_bytes", "fused_packed_bytes", "collected_bytes", "panel_bytes",
    "streamed_bytes",
)  # fmt: skip
"""What has to be right for every setting: nothing else follows where these are wrong."""

SHARE_BOUND = 0.1
"""How far a share may be off."""


@dataclass(frozen=True, slots=True)
class Found:
    """One count of one setting: what its sketch says, and what there is."""

    kind: str
    column: str
    said: float
    recounted: float
    where: str

    @property
    def ratio(self) -> float:
        """How many times too large or too small, >= 1; infinite beside nothing."""
        if abs(self.said - self.recounted) <= ROUNDING * max(abs(self.said), abs(self.recounted)):
            return 1.0
        low, high = sorted((self.said, self.recounted))
        return high / low if low > 0 else float("inf")

    @property
    def is_within(self) -> bool:
        if self.column.endswith("_share"):
            return abs(self.said - self.recounted) <= SHARE_BOUND
        return self.ratio <= BOUNDS.get(self.column, 1.0)


@dataclass(slots=True)
class Tally:
    """All of one column of one kind of sketch."""

    exact: int = 0
    within: int = 0
    outside: int = 0
    worst: Found | None = field(default=None)

    def add(self, found: Found) -> None:
        self.exact += found.ratio == 1.0
        self.within += found.ratio > 1.0 and found.is_within
        self.outside += not found.is_within
        if self.worst is None or found.ratio > self.worst.ratio:
            self.worst = found


def compared(counted: Counted) -> list[Found]:
    """Every count of one part of a setting that can be recounted."""
    real = recount(program(counted.nest, counted.stages, counted.statements))
    said = {**counted.columns, "footprint": float(footprint(counted.plan, counted.workload))}
    return [
        Found(counted.kind, column, said[column], value, counted.text)
        for column, value in real.items()
    ]


def footprint(plan: Plan, workload: Workload) -> float:
    """Bytes that the plan's first setting touches, as the traffic model counts them."""
    dense = (1 << len(plan.accesses)) - 1  # bytes, whatever their lines
    found = cache_traffic(replace(plan, dense_mask=dense), workload.tensors, [np.inf], line_bytes=1)
    return float(found.footprint[0])


def tallied(found: Iterable[Found]) -> Mapping[tuple[str, str], Tally]:
    """By kind and column."""
    tallies: dict[tuple[str, str], Tally] = {}
    for each in found:
        tallies.setdefault((each.kind, each.column), Tally()).add(each)
    return tallies
