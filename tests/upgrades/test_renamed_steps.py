"""Stored traces that name steps as earlier versions did are read as the same traces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.schedules.regrouping import MACHINE, SCATTERED, TWICE, expression
from tests.support.tuner.scripted import Scripted, ok
from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.full_checks import FullChecks
from tilewright.schedules.record import MeasureStatus, TuningRecord
from tilewright.schedules.rewrites import REWRITES
from tilewright.schedules.sketches import space_for
from tilewright.schedules.trace import Trace
from tilewright.schedules.trace_document import (
    RENAMED_STEPS,
    current_steps,
    has_rewrites,
    trace_key,
)
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.report import Budget
from tilewright.tuner.session.run import run_session

OLD = {new: old for old, new in RENAMED_STEPS.items()}

WRITTEN = [
    {"do": "AxisLast", "stage": "s0", "dim": 1},
    {"do": "Beforehand", "stage": "s0", "factors": [0, 1]},
    {"do": "OverTaps", "stage": "s0", "axis": "r0"},
    {"do": "Share", "stage": "s0", "part": 2},
]
"""Rewrites as 91a1886 wrote them."""


def by_old_names(trace: list[Any]) -> list[Any]:
    return [{**step, "do": OLD.get(step["do"], step["do"])} for step in trace]


def test_every_renamed_step_is_read_and_written_by_its_new_name() -> None:
    trace = Trace.from_json(WRITTEN)
    renamed = {step for step in REWRITES if step.__name__ in RENAMED_STEPS.values()}
    assert {type(step) for step in trace.steps} == renamed
    assert [step["do"] for step in trace.to_json()] == [*map(RENAMED_STEPS.get, OLD.values())]
    assert trace.to_json() == current_steps(WRITTEN)
    assert trace_key(WRITTEN) == canonical_bytes(trace.to_json())
    assert all(has_rewrites([step]) for step in WRITTEN)


def record_of(trace: list[Any]) -> TuningRecord:
    sink, workload = MemorySink(), expression(TWICE, "A=f32[9,50]")
    tuned(workload, sink, trials=1)
    return replace(sink.records(workload.key, MACHINE.key)[0], trace=trace)


def test_a_record_keeps_its_bytes_and_is_of_the_same_trace() -> None:
    new = record_of(Trace.from_json(WRITTEN).to_json())
    old = replace(new, trace=WRITTEN)
    assert old.to_json()["trace"] == WRITTEN
    assert old.key != new.key
    assert old.trace_key == new.trace_key


def test_a_schedule_that_an_earlier_version_disproved_is_refused() -> None:
    known = record_of(WRITTEN)
    result = replace(known.result, status=MeasureStatus.WRONG_RESULT)
    checks = FullChecks.of([(replace(known, verified_level="full", result=result), None)])
    assert checks.refusal(Trace.from_json(WRITTEN).to_json(), known.toolchain) is not None


def tuned(workload: Workload, sink: MemorySink, trials: int) -> Scripted:
    def by_trial(request: MeasureRequest) -> Any:
        return ok(1e-3 / (1 + request.trial % 7) + 1e-9 * request.trial)

    measurer = Scripted(by_trial)
    space = space_for(workload, MACHINE)
    run_session(workload, space, measurer=measurer, sink=sink, budget=Budget(trials=trials))
    return measurer


@pytest.mark.parametrize(
    ("text", "tensors", "ranges"),
    [(TWICE, "A=f32[9,50]", {}), (SCATTERED, "I=f32[1,6,7,3] W=f32[4,4,3,5]", {"y": 12, "x": 14})],
)
def test_tune_reuses_what_an_earlier_version_measured(
    text: str, tensors: str, ranges: dict[str, int]
) -> None:
    workload, sink, old = expression(text, tensors, **ranges), MemorySink(), MemorySink()
    assert tuned(workload, sink, trials=6).requests
    stored = sink.records(workload.key, MACHINE.key)
    assert any(has_rewrites(record.trace) for record in stored)
    for record in stored:
        old.add([replace(record, trace=by_old_names(record.trace))])
    again = tuned(workload, old, trials=6)
    assert not again.requests
    assert not again.confirmations
