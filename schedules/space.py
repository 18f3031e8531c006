"""Schedule spaces: sketches with open knobs, evaluated for arrays of settings.

A point of a space is a row of knob indices into the domains of one sketch. Search and cost models
process arrays of such rows; only a candidate that is measured is converted to a trace.
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
    """One open parameter. `values` are ordered so that neighbouring values differ by a small
    change."""

    name: str
    values: tuple[Any, ...]


class SpacePart(Protocol):
    """A sketch of one fusion group. `settings` are integer arrays (P, J). Row p has, for each of
    the J knobs, an index into that knob's `values`."""

    @property
    def name(self) -> str: ...

    @property
    def workload(self) -> Workload:
        """The workload of the space after the rewrites at the start of the traces. The buffers of
        the plan are tensors of this workload."""
        ...

    @property
    def target(self) -> Target: ...

    @property
    def knobs(self) -> tuple[Knob, ...]: ...

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether each setting is feasible on the target (registers, caches, extents), shape
        (P,)."""
        ...

    def plan(self, settings: IntArray) -> Plan:
        """Return the loops of `settings` (P, J) and their memory accesses."""
        ...

    def leaves(self, settings: IntArray) -> Iterable[Leaf]:
        """Return the statements inside the loops of `settings` (P, J), in program order."""
        ...

    def memory(self, settings: IntArray) -> MemoryUse:
        """Return the memory use of `settings` (P, J) without the loads and stores of the leaves."""
        ...

    def default(self) -> tuple[int, ...]:
        """Return a feasible setting that is reasonable without any measurement or model."""
        ...


class Sketch(Protocol):
    """A family of traces for a whole workload. Its parts run one after the other. Its knobs are the
    knobs of the parts, in order."""

    @property
    def name(self) -> str: ...

    @property
    def workload(self) -> Workload:
        """The workload of the space after the rewrites at the start of the traces."""
        ...

    @property
    def knobs(self) -> tuple[Knob, ...]: ...

    @property
    def parts(self) -> tuple[SpacePart, ...]: ...

    @property
    def equivalence_classes(self) -> tuple[tuple[int, ...], ...]:
        """The numbers of the parts, in groups of equal structure. Groups and their members are in
        ascending order. The analysis of a setting for one part holds for all parts of its group."""
        ...

    def single_part(self, number: int) -> Sketch:
        """Return the sketch that consists of part `number` only."""
        ...

    def split_settings(self, settings: IntArray) -> list[IntArray]:
        """Return the columns of `settings` (P, J) that belong to each part."""
        ...

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether each setting is feasible on the target, shape (P,)."""
        ...

    def trace(self, setting: Sequence[int]) -> Trace:
        """Return the trace of one feasible setting."""
        ...

    def lowered(self, setting: Sequence[int]) -> tuple[Trace, Nest]:
        """Return the trace of a setting and its lowered nest. Raise ScheduleError if a step of the
        trace is not legal. Primitives make the final decision on legality."""
        ...

    def default(self) -> tuple[int, ...]:
        """Return a feasible setting that is reasonable without any measurement or model."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A point of a space: the number of a sketch, and an index into the values of each of its
    knobs."""

    sketch: int
    setting: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DroppedSketch:
    """A sketch that rules matched but that is not searched, because primitives reject its default
    and all settings near it. `reason` is the error message for the default."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class ScheduleSpace:
    """All candidates for one workload on one target.

    `forms` are equivalent forms of the workload with other operations. `dropped` are the sketches
    removed from the space, with reasons.
    """

    workload: Workload
    target: Target
    sketches: tuple[Sketch, ...]
    forms: tuple[Form, ...] = ()
    dropped: tuple[DroppedSketch, ...] = ()

    @property
    def size(self) -> int:
        """Number of points of all sketches together, including infeasible ones."""
        return sum(prod(len(k.values) for k in s.knobs) for s in self.sketches)

    def trace(self, candidate: Candidate) -> Trace:
        return self.sketches[candidate.sketch].trace(candidate.setting)

    def default(self) -> Candidate:
        return Candidate(0, self.sketches[0].default())
