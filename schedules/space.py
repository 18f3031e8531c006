"""Schedule spaces: sketches with open knobs, answered for arrays of settings at once.

A point of a space is a row of knob indices into the domains of one sketch. Search and cost
model work on arrays of such rows; only a candidate that will be measured becomes a trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from .arrays import BoolArray, FloatArray, IntArray
from .plan import Plan
from .target import Target
from .trace import Trace
from .workload.workload import Workload

COLUMNS: dict[str, str] = {
    "flops": "scalar operations executed, work on padding included",
    "vector_ops": "arithmetic vector instructions executed (an FMA is one)",
    "vector_loads": "vector and broadcast loads executed in the innermost loops",
    "vector_stores": "vector stores executed in the innermost loops",
    "scalar_accesses": "element-wise accesses: gathers, scatters, strided lanes",
    "conflict_misses": "waits: crowded sets, hints nobody gave, ends of rows; in misses near by",
    "math_calls": "vector evaluations of exp, tanh, erf and the like",
    "accumulators": "independent accumulator registers of the innermost reduction; 0 if none",
    "live_registers": "vector registers the innermost loop needs at once",
    "held_values": "operand registers that steps written out one after the other have in common",
    "inner_trips": "trip count of the innermost loop that is not unrolled or vectorised",
    "inner_entries": "how often that loop is entered",
    "code_ops": "instructions in the unrolled innermost body",
    "packed_bytes": "bytes written by packing and other private copies, in total",
    "strided_packed_bytes": "the part of packed_bytes whose copy cannot use whole vectors",
    "panel_bytes": "bytes of the largest private copy that is in use at once, a thread",
    "streamed_bytes": "bytes of the output that are written past the caches",
    "masked_share": "share of vector_ops that are masked, 0..1",
    "tasks": "iterations of the parallel loop, a shorter one as a part; 1 if nothing is parallel",
    "regions": "parallel regions entered a call; 0 if nothing is parallel",
}
"""What `Sketch.columns` gives, and what it means. Counts are over one call, all threads."""


def with_zeros(some: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """`some` of COLUMNS, `tasks` among them, and zeros for those that a sketch has nothing of."""
    assert some.keys() <= COLUMNS.keys()
    count = len(some["tasks"])
    return {name: some[name] if name in some else np.zeros(count) for name in COLUMNS}


@dataclass(frozen=True, slots=True)
class Knob:
    """One open choice. `values` are in a meaningful order: neighbours are small changes."""

    name: str
    values: tuple[Any, ...]


class Sketch(Protocol):
    """A family of traces with the same structure. `settings` are int arrays (P, J): row p holds,
    for each of the J knobs, the index into that knob's `values`."""

    @property
    def name(self) -> str: ...

    @property
    def workload(self) -> Workload:
        """What buffers of a plan's accesses are tensors of: the space's workload after the
        rewrites its traces begin with."""
        ...

    @property
    def knobs(self) -> tuple[Knob, ...]: ...

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether each setting is one the target can hold: registers, caches, extents."""
        ...

    def plan(self, settings: IntArray) -> Plan:
        """The loops that (P, J) settings stand for, and what they touch."""
        ...

    def columns(self, settings: IntArray) -> dict[str, FloatArray]:
        """Named structural quantities, each (P,), for the prior and the features: COLUMNS."""
        ...

    def trace(self, setting: Sequence[int]) -> Trace:
        """The trace of one feasible setting."""
        ...

    def default(self) -> tuple[int, ...]:
        """A feasible setting that is sensible with no measurement and no model."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point of a space: which sketch, and an index into each of its knobs' values."""

    sketch: int
    setting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ScheduleSpace:
    """All candidates for one workload on one target."""

    workload: Workload
    target: Target
    sketches: tuple[Sketch, ...]

    @property
    def size(self) -> int:
        """Number of points before feasibility, over all sketches."""
        return sum(prod(len(k.values) for k in s.knobs) for s in self.sketches)

    def trace(self, candidate: Candidate) -> Trace:
        return self.sketches[candidate.sketch].trace(candidate.setting)

    def default(self) -> Candidate:
        return Candidate(0, self.sketches[0].default())
