"""The trials that a search takes over from other spellings of its computation. Their schedules are
schedules of this spelling, with other rewrites before the same primitives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import inf, log2
from typing import Any, Self

import numpy as np

from tilewright.costmodel.base import BorrowedSample
from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.form import Form
from tilewright.schedules.full_checks import FULL
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.lowering.storage import plan_storage
from tilewright.schedules.named_setting import NamedSetting, exact_setting
from tilewright.schedules.record import Toolchain, TuningRecord
from tilewright.schedules.related import RelatedRecords
from tilewright.schedules.sketches.forms.spellings import respelled, respelled_form
from tilewright.schedules.sketches.program import sketches_of
from tilewright.schedules.space import Candidate, DroppedSketch, ScheduleSpace, Sketch
from tilewright.schedules.trace import Trace
from tilewright.schedules.trace_document import leading_rewrites
from tilewright.schedules.workload.workload import Workload

from .related import chosen, comparable

MOST_SCHEDULES = 4
"""Number of schedules of other spellings of which the first legal one is a default schedule."""


@dataclass(frozen=True, slots=True)
class SpelledTrace:
    """A measured schedule of another spelling. `source` (1, 2, ...) is the number of the related
    task, `workload` the spelling, `steps` the trace as records store it."""

    source: int
    workload: Workload
    steps: list[Any]

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "workload": self.workload.to_json(),
            "steps": self.steps,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        """Return the schedule of a document written by `to_json`."""
        return cls(**document | {"workload": Workload.from_json(document["workload"])})


def fastest_traces(found: Sequence[RelatedRecords], toolchain: Toolchain) -> list[SpelledTrace]:
    """Return the fastest schedules of other spellings of a computation, among the related tasks
    `found`; those that were checked in full first."""
    ranked = [
        (_rank(record), record.trace_key, SpelledTrace(source, one.spelling, record.trace))
        for source, (one, records) in enumerate(comparable(found, toolchain), start=1)
        if one.spelling is not None
        for record in records
    ]
    ranked.sort(key=lambda one: one[0])
    distinct = {(one.source, key): one for _, key, one in ranked}  # in the order of the first ones
    return list(distinct.values())[:MOST_SCHEDULES]


def first_legal(
    workload: Workload, candidates: Sequence[SpelledTrace]
) -> tuple[Trace, SpelledTrace] | None:
    """Return the first of `candidates` that is a legal schedule of `workload`, as its trace, or
    None."""
    for one in candidates:
        try:
            trace = respelled(Trace.from_json(one.steps), one.workload, workload)
            if trace is not None:
                plan_storage(lower(workload, trace))
                return trace, one
        except ScheduleError:
            continue
    return None


def samples_of_spellings(
    space: ScheduleSpace,
    found: Sequence[RelatedRecords],
    toolchain: Toolchain,
    check: Callable[[], None] = lambda: None,
) -> tuple[ScheduleSpace, list[BorrowedSample]]:
    """Return the trials of other spellings, among the related tasks `found`, as samples of
    candidates, and `space` with the sketches of these candidates that it lacks.

    The first sample of each spelling is its fastest schedule that was checked in full, if there is
    one; `related.chosen` describes the others. Trials without a candidate that has the same loops
    are left out. `check` is called repeatedly and may raise an exception to stop.
    """
    sketches = list(space.sketches)
    samples: dict[Candidate, BorrowedSample] = {}
    for source, (one, records) in enumerate(comparable(found, toolchain), start=1):
        if one.spelling is None:
            continue
        spelling = _Spelling(one.spelling, space, sketches, check)
        for record in [*sorted(records, key=_rank)[:1], *chosen(records)]:
            candidate = spelling.candidate(record)
            secs, prior_secs = record.result.run_secs_estimate, record.prior_secs
            if candidate is not None and secs is not None and prior_secs is not None:
                sample = BorrowedSample(candidate, log2(secs / prior_secs), source, 1.0, work=0)
                samples.setdefault(candidate, sample)
    return replace(space, sketches=tuple(sketches)), list(samples.values())


@dataclass
class _Spelling:
    """The `workload` of another spelling. `sketches` are those of `space` and, after them, further
    ones that trials of the spelling need."""

    workload: Workload
    space: ScheduleSpace
    sketches: list[Sketch]
    check: Callable[[], None]
    _numbers: dict[bytes, int | None] = field(default_factory=dict)

    def candidate(self, record: TuningRecord) -> Candidate | None:
        """Return the candidate that has the loops of `record`, or None if there is none."""
        assert record.setting is not None
        named = NamedSetting.from_json(record.setting)
        rewrites = leading_rewrites(record.trace)
        key = canonical_bytes([rewrites, named.sketch])
        if key not in self._numbers:
            self._numbers[key] = self._number_of(rewrites, named.sketch)
        number = self._numbers[key]
        setting = None if number is None else exact_setting(self.sketches[number], named)
        if number is None or setting is None:
            return None
        is_feasible = self.sketches[number].feasible(np.array([setting], np.int64))[0]
        return Candidate(number, setting) if is_feasible else None

    def _number_of(self, document: list[Any], name: str) -> int | None:
        """Return the number of the sketch with the parts of the sketch `name` and the form that the
        rewrites of `document` make of the spelling. It is added if there is none."""
        parts = "+".join(name.split("+")[len(document) :])
        try:
            rewrites = Trace.from_json(document).rewrites
            reached = Form(self.workload.stored()).after(*rewrites).workload
            for number, sketch in enumerate(self.sketches):
                if sketch.workload == reached and _parts_of(sketch) == parts:
                    return number
            form = respelled_form(rewrites, self.workload, self.space.workload)
        except ScheduleError:
            return None
        for other in () if form is None else sketches_of(form, self.space.target, self.check):
            if not isinstance(other, DroppedSketch) and _parts_of(other) == parts:
                self.sketches.append(other)
                return len(self.sketches) - 1
        return None


def _parts_of(sketch: Sketch) -> str:
    """Return the name of a sketch without the labels of its rewrites."""
    return "+".join(part.name for part in sketch.parts)


def _rank(record: TuningRecord) -> tuple[bool, float]:
    """Return the place of a record in an order: fully checked ones first, then by time."""
    return record.verified_level != FULL, record.result.run_secs_estimate or inf
