"""The bound in a session: a kernel that beats it has the machine probed again, and is believed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

import pytest

from tests.support.schedules.workloads import notation
from tests.support.synthetic_sketch import synthetic_space, synthetic_target
from tests.support.tuner.scripted import Scripted, ok
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import TargetError
from tilewright.schedules.record import MeasureResult
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Probes, Target
from tilewright.tuner.machine.least_work import least_work
from tilewright.tuner.machine.roofline import bound_for, shown_by_kernel
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.process.control import Control
from tilewright.tuner.search.strategies.annealing import AnnealingStrategy
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.options import SessionOptions
from tilewright.tuner.session.report import Budget, TrialEvent, TuneReport
from tilewright.tuner.session.roofline_bound import PROBE_ERROR, RooflineBound
from tilewright.tuner.session.run import run_session
from tilewright.tuner.session.stopping_rule import MAX_RECHECKS_AT_BOUND

QUIET = synthetic_target(threads=2)
LOADED = replace(
    QUIET,
    probes=replace(
        QUIET.probes,
        peak_gflops={"f32": [96.0, 96.0, 96.0, 96.0]},  # two virtual CPUs on one core
        bandwidth_gbs={**QUIET.probes.bandwidth_gbs, "L3": [45.0] * 4, "memory": [20.0, 12.0] * 2},
        parallel_region_secs=2e-6,
    ),
)
MATMUL = parse_workload("matmul:M=256,N=256,K=256")


@dataclass
class FakeMachine:
    """Has these probes when asked again, or is another machine."""

    probes: Probes | None
    asked: list[float] = field(default_factory=list)
    within: list[float] = field(default_factory=list)
    kept: list[Probes] = field(default_factory=list)

    def probe_again(self, target: Target, recent_secs: float, within_secs: float) -> Target | None:
        self.asked.append(recent_secs)
        self.within.append(within_secs)
        return None if self.probes is None else replace(target, probes=self.probes)

    def cache_probes(self, target: Target) -> None:
        self.kept.append(target.probes)


def space_with(probes: Probes) -> ScheduleSpace:
    made = synthetic_space(64, 64, 64, small=True)
    target = replace(made.target, threads=2, probes=probes)
    return ScheduleSpace(made.workload, target, made.sketches)


def run(
    answer: Callable[[MeasureRequest], MeasureResult],
    probes: Probes,
    machine: FakeMachine | None = None,
    sink: MemorySink | None = None,
    on_event: Callable[[TrialEvent], None] = lambda event: None,
) -> TuneReport:
    space = space_with(probes)
    return run_session(
        space.workload,
        space,
        measurer=Scripted(answer),
        sink=sink or MemorySink(),
        budget=Budget(trials=24),
        on_event=on_event,
        options=SessionOptions(machine=machine, control=Control(now=lambda: 0.0)),
    )


def true_secs() -> float:
    """What nothing beats on the quiet machine."""
    space = space_with(QUIET.probes)
    return bound_for(space.workload, space.target).secs


def slow_then_good(request: MeasureRequest) -> MeasureResult:
    """Trials get better until the 20th, which is at the true bound."""
    return ok(true_secs() * (1.01 + 0.05 * max(20 - request.trial, 0)))


@pytest.mark.parametrize("marked", [True, False], ids=["known to be busy", "taken for quiet"])
def test_a_loaded_probe_ends_no_search(marked: bool) -> None:
    loaded = replace(LOADED.probes, doubtful=marked)
    machine = FakeMachine(QUIET.probes)
    report = run(slow_then_good, loaded, machine)
    assert report.best is not None
    assert report.best.run_secs == pytest.approx(true_secs() * 1.01)
    assert report.trials["total"] >= 20
    assert report.best.fraction_of_bound == pytest.approx(1 / 1.01, rel=0.01)
    if not marked:
        assert len(machine.asked) == 1
        assert report.bound["raised_by"] == "probe"
        assert "probed again" in report.bound["notes"][0]


@pytest.mark.parametrize(
    ("machine", "notes"),
    [(None, []), (FakeMachine(None), ["probed on a busy machine: not used for early stopping"])],
)
def test_no_rate_that_a_busy_machine_was_probed_for_is_said_to_be_derived(
    machine: FakeMachine | None, notes: list[str]
) -> None:
    space = space_with(replace(QUIET.probes, doubtful=True))
    work = least_work(space.workload, space.forms)
    assert RooflineBound(work, space.target, machine).notes == notes


def test_a_search_that_would_end_at_the_bound_asks_the_machine_first() -> None:
    """A probe that is too low by less than what the kernel lacks: nothing contradicts it."""
    low = space_with(LOADED.probes)
    secs = bound_for(low.workload, low.target).secs
    machine = FakeMachine(QUIET.probes)
    report = run(lambda r: ok(1.02 * secs + 1e-12 * r.trial), LOADED.probes, machine)
    assert machine.asked
    assert report.trials["total"] == 24
    assert report.best is not None
    assert report.best.fraction_of_bound < 0.9


def test_a_search_at_a_bound_that_stands_ends_there() -> None:
    machine = FakeMachine(QUIET.probes)
    report = run(lambda r: ok(1.01 * true_secs()), QUIET.probes, machine)
    assert "of the bound" in report.stopped_because
    assert machine.asked
    assert report.bound["raised_by"] is None


@pytest.mark.parametrize("machine", [None, FakeMachine(None), FakeMachine(LOADED.probes)])
def test_what_no_probe_explains_the_kernel_shows(machine: FakeMachine | None) -> None:
    told: list[TrialEvent] = []
    report = run(lambda r: ok(0.6 * true_secs()), LOADED.probes, machine, on_event=told.append)
    assert report.best is not None
    assert report.best.fraction_of_bound == 1.0
    assert "of the bound" not in report.stopped_because
    assert report.bound["raised_by"] == "kernel"
    assert not report.bound["ends_searches"]
    assert all(event.fraction_of_bound is None for event in told)


def test_what_a_kernel_proved_is_kept_for_later_runs() -> None:
    machine = FakeMachine(LOADED.probes)
    run(lambda r: ok(true_secs()), LOADED.probes, machine)
    (kept,) = machine.kept
    space = space_with(LOADED.probes)
    assert kept.peak(DType.F32, 2) == pytest.approx(space.workload.flops / true_secs() / 1e9)
    assert kept.doubtful


def test_a_run_that_measures_nothing_asks_nothing() -> None:
    sink, machine = MemorySink(), FakeMachine(LOADED.probes)
    first = run(lambda r: ok(0.6 * true_secs()), LOADED.probes, None, sink)
    again = run(lambda r: ok(0.6 * true_secs()), LOADED.probes, machine, sink)
    assert (machine.asked, machine.kept) == ([], [])
    assert again.trials["measured_now"] == 0
    assert again.best == first.best


def test_a_probe_that_fails_ends_no_run() -> None:
    class Broken(FakeMachine):
        def probe_again(
            self, target: Target, recent_secs: float, within_secs: float
        ) -> Target | None:
            raise TargetError("probing failed with status 132")

    report = run(lambda r: ok(0.6 * true_secs()), QUIET.probes, Broken(None))
    assert report.best is not None
    assert any("could not be probed again" in note for note in report.bound["notes"])


def test_a_run_that_is_out_of_time_probes_nothing() -> None:
    space, machine = space_with(QUIET.probes), FakeMachine(QUIET.probes)
    measurer = Scripted(lambda r: ok(0.6 * true_secs()))
    report = run_session(
        space.workload,
        space,
        measurer=measurer,
        sink=MemorySink(),
        options=SessionOptions(
            machine=machine,
            control=Control(now=lambda: 0.0),
            should_stop=lambda: bool(measurer.requests),
        ),
    )
    assert report.best is not None
    assert report.best.fraction_of_bound == 1.0
    assert machine.asked == []


def test_probing_has_what_is_left_of_the_time_budget() -> None:
    space, machine, ticks = space_with(LOADED.probes), FakeMachine(QUIET.probes), count()
    run_session(
        space.workload,
        space,
        measurer=Scripted(lambda r: ok(0.9 * true_secs())),
        sink=MemorySink(),
        budget=Budget(trials=24, seconds=400.0),
        options=SessionOptions(machine=machine, control=Control(now=lambda: float(next(ticks)))),
    )
    assert machine.within
    assert all(0 < secs < 400.0 for secs in machine.within)


def lucky_measurer(lucky: frozenset[int] = frozenset({3}), true_share: float = 0.92) -> Scripted:
    """Trials of `lucky` look as if they were at the bound; the full check says what is true."""

    def answer(request: MeasureRequest) -> MeasureResult:
        slow = 1.2 + 1e-6 * request.trial
        return ok(true_secs() * (1.0 if request.trial in lucky else slow))

    return Scripted(answer, confirmed=lambda request: ok(true_secs() / true_share))


def run_lucky(measurer: Scripted, sink: MemorySink | None = None) -> TuneReport:
    space = space_with(QUIET.probes)
    return run_session(
        space.workload,
        space,
        measurer=measurer,
        sink=sink or MemorySink(),
        budget=Budget(trials=24),
        options=SessionOptions(machine=FakeMachine(QUIET.probes), control=Control(now=lambda: 0.0)),
    )


def test_a_lucky_trial_ends_no_search_at_the_bound() -> None:
    sink = MemorySink()
    report = run_lucky(lucky_measurer(), sink)
    assert "of the bound" not in report.stopped_because
    assert report.trials["total"] == 24
    again = run_lucky(lucky_measurer(), sink)
    assert again.trials["measured_now"] == 0
    assert again.trials["total"] == 24
    assert again.stopped_because == report.stopped_because


def test_a_time_at_the_bound_is_confirmed_once_and_ends_the_search() -> None:
    measurer = lucky_measurer(true_share=0.99)
    report = run_lucky(measurer)
    assert "of the bound" in report.stopped_because
    assert report.trials["total"] == 4
    assert len(measurer.confirmations) == 1


def test_times_at_the_bound_are_not_checked_again_for_ever() -> None:
    measurer = lucky_measurer(lucky=frozenset(range(1, 25)))
    report = run_lucky(measurer)
    assert report.trials["total"] == 24
    assert len(measurer.confirmations) <= MAX_RECHECKS_AT_BOUND + 2  # and the best of the last race


def test_a_search_led_astray_by_a_probe_goes_by_the_right_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    corrected: list[Probes] = []
    monkeypatch.setattr(
        AnnealingStrategy, "correct", lambda self, target: corrected.append(target.probes)
    )
    dear = replace(QUIET.probes, parallel_region_secs=4 * QUIET.probes.parallel_region_secs)
    space = space_with(dear)
    at_bound = bound_for(space.workload, space.target).secs
    run(lambda r: ok(1.01 * at_bound), dear, FakeMachine(QUIET.probes))
    assert corrected == [QUIET.probes]
    corrected.clear()
    run(lambda r: ok(1.01 * true_secs()), QUIET.probes, FakeMachine(QUIET.probes))
    assert not corrected


@pytest.mark.parametrize("share", [0.3, 0.6, 0.97, 0.985, 1.0, 1.3, 4.0])
def test_no_report_shows_more_than_the_bound(share: float) -> None:
    report = run(lambda r: ok(share * true_secs()), QUIET.probes, FakeMachine(QUIET.probes))
    assert report.best is not None
    assert report.best.fraction_of_bound <= PROBE_ERROR


def test_a_mistimed_trial_does_not_raise_the_bound() -> None:
    """The first look says a tenth of the bound; the race and the full check say what is true."""

    @dataclass
    class Mistimed(Scripted):
        def confirm(self, request: MeasureRequest) -> MeasureResult:
            return ok(2 * true_secs())

    space, machine = space_with(QUIET.probes), FakeMachine(QUIET.probes)
    report = run_session(
        space.workload,
        space,
        measurer=Mistimed(lambda r: ok((0.1 if r.trial == 3 else 2.0) * true_secs())),
        sink=MemorySink(),
        budget=Budget(trials=24),
        options=SessionOptions(machine=machine, control=Control(now=lambda: 0.0)),
    )
    assert report.bound["secs"] == pytest.approx(true_secs())
    assert report.bound["raised_by"] is None
    assert not machine.kept


def test_a_busy_machine_s_bound_counts_no_parallel_region() -> None:
    busy = replace(LOADED, probes=replace(QUIET.probes, parallel_region_secs=2e-6, doubtful=True))
    assert bound_for(MATMUL, busy).secs == pytest.approx(
        bound_for(
            MATMUL, replace(QUIET, probes=replace(QUIET.probes, parallel_region_secs=0.0))
        ).secs
    )
    assert not bound_for(MATMUL, busy).probed
    assert RooflineBound(least_work(MATMUL), busy).goal_secs is None


def test_what_is_implausible_does_not_hang_on_probes_of_several_threads() -> None:
    assert bound_for(MATMUL, LOADED).least_secs == bound_for(MATMUL, QUIET).least_secs
    assert bound_for(MATMUL, QUIET).least_secs == pytest.approx(
        bound_for(MATMUL, QUIET).secs, rel=0.15
    )


def test_a_kernel_raises_no_peak_above_that_of_its_cores() -> None:
    secs = bound_for(MATMUL, QUIET).secs / 10
    shown = shown_by_kernel(least_work(MATMUL), LOADED, secs)
    assert shown.peak(DType.F32, 2) == 2 * LOADED.probes.peak(DType.F32, 1)
    assert shown.peak(DType.F32, 1) == LOADED.probes.peak(DType.F32, 1)


def test_bytes_that_inner_caches_may_hold_raise_no_bandwidth() -> None:
    copy = parse_workload("elementwise_add_relu:M=2048,N=2048")
    one = replace(QUIET, threads=1)
    limit = bound_for(copy, one)
    inside = sum(cache.bytes for cache in one.caches)
    assert limit.binds == "memory"
    secs = limit.secs / 2
    shown = shown_by_kernel(least_work(copy), one, secs)
    assert shown.bandwidth("memory", 1) == pytest.approx((copy.min_bytes - inside) / secs / 1e9)
    almost = replace(
        one, caches=(*one.caches[:2], replace(one.caches[2], bytes=copy.min_bytes - 1))
    )
    assert shown_by_kernel(least_work(copy), almost, secs).bandwidth("memory", 1) == 20.0


@pytest.mark.parametrize("threads", [1, 2])
def test_a_kernel_raises_no_bandwidth_above_that_of_the_level_before(threads: int) -> None:
    copy = parse_workload("elementwise_add_relu:M=2048,N=2048")
    one = replace(QUIET, threads=threads)
    shown = shown_by_kernel(least_work(copy), one, bound_for(copy, one).secs / 1000)
    assert shown.bandwidth("memory", threads) == shown.bandwidth("L3", threads)
    assert shown.bandwidth("L3", threads) == one.probes.bandwidth("L3", threads)


@pytest.mark.parametrize(
    ("text", "tensors", "elements"),
    [
        ("s[b] += X[b,k,k]", {"X": "f32[4,300,300]"}, 4 * 300 + 4),
        ("Y[i] = X[64*i]", {"X": "f32[65536]"}, 2 * 1024),
        ("Y[i,j] = X[i,j] + X[i,0] + V[3]", {"X": "f32[50,60]", "V": "f32[9]"}, 2 * 3000 + 1),
        ("Y[i] += X[i+k] * W[k]", {"X": "f32[1000]", "W": "f32[11]"}, 1000 + 11 + 990),
    ],
)
def test_inputs_count_as_far_as_they_are_read(
    text: str, tensors: dict[str, str], elements: int
) -> None:
    """A kernel that reads a diagonal is no proof that memory is fast."""
    assert least_work(notation(text, None, **tensors)).min_bytes == 4 * elements


def test_a_kernel_that_is_no_faster_raises_nothing() -> None:
    assert shown_by_kernel(least_work(MATMUL), QUIET, bound_for(MATMUL, QUIET).secs) is QUIET.probes
