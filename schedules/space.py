"""Schedule spaces: sketches with open knobs, evaluated for arrays of settings at once.

A point of a space is a row of indices into the values of one sketch's knobs. Search and cost model
work on arrays of such rows; only a candidate that will be measured becomes a trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

from .arrays import BoolArray, IntArray
from .form import Form
from .leaves import Leaf
from .memory_use import MemoryUse
from .nest.loop_ir import Nest
from .plan import Plan
from .target import Target
from .trace import Trace
from .workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Knob:
    """One open choice. `values` are in a meaningful order: neighbours are small changes."""

    name: str
    values: tuple[Any, ...]


class SpacePart(Protocol):
    """Traces of one group of stages, all with the same structure. `settings` are int arrays (P, J):
    row p holds, for each of the J knobs, the index into that knob's `values`."""

    @property
    def name(self) -> str: ...

    @property
    def workload(self) -> Workload:
        """What buffers of a plan's accesses are tensors of: the space's workload after the
        rewrites its traces begin with."""
        ...

    @property
    def target(self) -> Target: ...

    @property
    def knobs(self) -> tuple[Knob, ...]: ...

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether each setting fits the target: registers, caches, extents."""
        ...

    def plan(self, settings: IntArray) -> Plan:
        """The loop nests of (P, J) settings, and their accesses."""
        ...

    def leaves(self, settings: IntArray) -> Iterable[Leaf]:
        """The statements of (P, J) settings in those loops, in program order."""
        ...

    def memory(self, settings: IntArray) -> MemoryUse:
        """The memory use of (P, J) settings beside loads and stores."""
        ...

    def default(self) -> tuple[int, ...]:
        """A feasible setting that is sensible without measurement or model."""
        ...


class Sketch(Protocol):
    """A family of traces for a whole workload: its parts are computed one after the other, and
    its knobs are those of the parts, in order."""

    @property
    def name(self) -> str: ...

    @property
    def workload(self) -> Workload:
        """What the parts speak of: the space's workload after the rewrites its traces begin
        with."""
        ...

    @property
    def knobs(self) -> tuple[Knob, ...]: ...

    @property
    def parts(self) -> tuple[SpacePart, ...]: ...

    @property
    def equivalence_classes(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the parts in classes of equal structure, classes and members in order:
        results for one part's settings hold for the whole class."""
        ...

    def single_part(self, number: int) -> Sketch:
        """The sketch that has this part only."""
        ...

    def split_settings(self, settings: IntArray) -> list[IntArray]:
        """The columns of (P, J) `settings` that belong to each part."""
        ...

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether each setting is one the target can hold."""
        ...

    def trace(self, setting: Sequence[int]) -> Trace:
        """The trace of one feasible setting."""
        ...

    def lowered(self, setting: Sequence[int]) -> tuple[Trace, Nest]:
        """A setting's trace, and the nest it is lowered to; ScheduleError if the primitives refuse
        it, which decide."""
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
class DroppedSketch:
    """A matching sketch that is not searched: primitives refuse its default, and all settings near
    it. `reason` is their message for the default."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ScheduleSpace:
    """All candidates for one workload on one target. `forms` are its rewritten forms; `dropped` are
    the sketches that it lacks, with the reasons."""

    workload: Workload
    target: Target
    sketches: tuple[Sketch, ...]
    forms: tuple[Form, ...] = ()
    dropped: tuple[DroppedSketch, ...] = ()

    @property
    def size(self) -> int:
        """Number of points before feasibility, over all sketches."""
        return sum(prod(len(k.values) for k in s.knobs) for s in self.sketches)

    def trace(self, candidate: Candidate) -> Trace:
        return self.sketches[candidate.sketch].trace(candidate.setting)

    def default(self) -> Candidate:
        return Candidate(0, self.sketches[0].default())
