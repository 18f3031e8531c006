"""Explanations on machines that answer as the test says."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.schedules.spaces import target
from tests.support.tuner.scripted import Scripted, ok
from tilewright.schedules import operators
from tilewright.schedules.named_setting import named_setting
from tilewright.schedules.primitives import Unroll, Vectorize
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.sketches import space_for
from tilewright.schedules.space import Candidate
from tilewright.schedules.trace import Trace
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.process.control import Control, OutOfTime
from tilewright.tuner.search.prior_ranking import rank_for_default
from tilewright.tuner.session.explanation import (
    MAX_CHOICES,
    ROUNDS,
    Explanation,
    explain_schedule,
)
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.options import SessionOptions

SPACE = space_for(operators.matmul(M=64, N=64, K=64), target(2))
BEST = rank_for_default(SPACE).default
TRACE = SPACE.trace(BEST)
SETTING = named_setting(SPACE, BEST)


def explained(
    measurer: Scripted, *, trace: Trace = TRACE, control: Control | None = None
) -> Explanation:
    options = SessionOptions(control=control or Control(), timestamp=lambda: "")
    found = explain_schedule(
        SPACE, trace, SETTING, measurer=measurer, sink=MemorySink(), options=options
    )
    assert isinstance(found, Explanation)
    return found


def by_trial(request: MeasureRequest) -> MeasureResult:
    return ok(1e-3 * request.trial)


def test_each_choice_is_raced_in_rounds_and_the_dearest_is_first() -> None:
    machine = Scripted(by_trial)
    found = explained(machine)
    assert found.by_setting
    assert found.rounds == ROUNDS
    assert found.run_secs == 1e-3
    times = [step.slower_by for step in found.steps]
    assert times == sorted(times, key=lambda ratio: -(ratio or 0.0))
    trials = sorted(r.trial for r in machine.raced)
    assert trials == sorted([*range(1, len(found.steps) + 2)] * ROUNDS)
    assert all(r.compared for r in machine.raced)
    first, second = machine.raced[: len(found.steps) + 1], machine.raced[len(found.steps) + 1 :]
    assert [r.trial for r in second[: len(first)]] == [r.trial for r in first][::-1]
    for step in found.steps:
        assert step.slower_low == step.slower_by == step.slower_high
        words, _, value = step.step.partition(": ")
        assert words
        assert value
    assert set(found.predicted_secs) >= {"arithmetic"}
    assert found.bound["secs"] > 0


def test_one_disturbed_round_is_not_in_the_interval() -> None:
    counts: dict[int, int] = {}

    def noisy(request: MeasureRequest) -> MeasureResult:
        counts[request.trial] = counts.get(request.trial, 0) + 1
        return ok(1e-3 * (50 if counts[request.trial] == 3 and request.trial == 2 else 1))

    found = explained(Scripted(noisy))
    assert all((s.slower_by, s.slower_low, s.slower_high) == (1.0, 1.0, 1.0) for s in found.steps)


def test_a_variant_that_fails_says_why_and_the_others_are_raced() -> None:
    def answer(request: MeasureRequest) -> MeasureResult:
        if request.trial == 2:
            return MeasureResult(MeasureStatus.RUN_TIMEOUT, detail="took too long")
        return ok(1e-3)

    machine = Scripted(answer)
    found = explained(machine)
    assert (found.steps[-1].status, found.steps[-1].detail) == ("run_timeout", "took too long")
    assert found.steps[-1].slower_by is None
    assert all(step.slower_by == 1.0 for step in found.steps[:-1])
    assert sum(r.trial == 2 for r in machine.raced) == 1


def test_a_schedule_that_fails_itself_is_the_result() -> None:
    wrong = MeasureResult(MeasureStatus.WRONG_RESULT, detail="element 3")
    machine = Scripted(lambda request: wrong if request.trial == 1 else ok(1e-3))
    found = explain_schedule(SPACE, TRACE, SETTING, measurer=machine, sink=MemorySink())
    assert found == wrong


def test_variants_are_stored_as_trials_of_later_searches() -> None:
    sink = MemorySink()
    machine = SimulatedMachine(seed=1)(SPACE.workload, SPACE.target, 0)
    options = SessionOptions(timestamp=lambda: "")
    found = explain_schedule(SPACE, TRACE, None, measurer=machine, sink=sink, options=options)
    assert isinstance(found, Explanation)
    records = sink.records(SPACE.workload.key, SPACE.target.key)
    assert len(records) == len([s for s in found.steps if s.slower_by]) > 2
    for record in records:
        assert record.trial == 0
        assert record.setting is not None
        assert record.prior_secs is not None
        assert record.verified_level == "quick"


def test_the_default_is_recognised_and_another_trace_loses_single_steps() -> None:
    machine = SimulatedMachine(seed=1)(SPACE.workload, SPACE.target, 0)
    rng = np.random.default_rng(0)
    sketch = SPACE.sketches[0]
    settings = rng.integers(0, [len(k.values) for k in sketch.knobs], (4096, len(sketch.knobs)))
    setting = settings[sketch.feasible(settings)][0]
    trace = SPACE.trace(Candidate(0, tuple(setting.tolist())))
    default, found = (
        explain_schedule(SPACE, given, None, measurer=machine, sink=MemorySink())
        for given in (TRACE, trace)
    )
    assert isinstance(default, Explanation)
    assert isinstance(found, Explanation)
    assert (default.by_setting, found.by_setting) == (True, False)
    assert 0 < len(found.steps) <= MAX_CHOICES
    kinds = (Vectorize.__name__, Unroll.__name__)
    assert any(step.step.startswith(kinds) for step in found.steps)
    assert {step.undone for step in found.steps} == {"left out"}
    assert found.predicted_secs == {}


def test_a_schedule_without_choices_has_nothing_to_undo() -> None:
    found = explained(Scripted(by_trial), trace=Trace())
    assert (found.steps, found.left_out, found.by_setting) == ((), 0, False)


def test_rounds_end_before_the_time_limit() -> None:
    now = [0.0]

    def slow(request: MeasureRequest) -> MeasureResult:
        now[0] += 1.0
        return ok(1e-3)

    control = Control(now=lambda: now[0])
    control.allow(25.0)
    found = explained(Scripted(slow), control=control)
    assert 1 <= found.rounds < ROUNDS

    def late(request: MeasureRequest) -> MeasureResult:
        raise OutOfTime("the time budget is used up")

    with pytest.raises(OutOfTime):
        explained(Scripted(late))
