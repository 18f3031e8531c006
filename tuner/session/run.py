"""The tuning session: propose, measure and store candidates until the stopping rule ends it.

Only this module combines all parts; each part is an argument. An interrupted run is resumed by
running it again: the strategy is deterministic, so it proposes the same candidates, and candidates
with a stored record are not measured again. With `previous_trials` the strategy does not even
propose them again.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from tilewright.schedules.full_checks import timings_of
from tilewright.schedules.related import MAX_WORKLOADS
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.workload.workload import Workload

from ..machine.least_work import least_work
from ..measure.protocol import Measurer, TakesBound
from ..process.control import MeasurementAborted, OutOfTime
from ..search.base import SearchGoal
from ..search.strategies import make_strategy
from . import summary
from .confirmation import Confirmation, confirm, confirmed_before
from .database_model import ModelInUse, model_in_use
from .lent_trials import lent_trials
from .loop import Stopped, TuningLoop
from .options import EventHandler, SessionOptions
from .report import Budget, RecordSink, TuneReport
from .roofline_bound import RooflineBound
from .stopping_rule import MAX_BATCH
from .trials import explain
from .tuning_run import STOPPED, TuningRun

DEFAULT_BUDGET = Budget()


class TuningSession:
    """A tuning run that its caller advances: call `step` until `ended`, then `finish` once.

    The caller may wait between two calls. If the run is aborted or its time budget ends, `step`
    ends the session; no exception is raised.
    """

    def __init__(self, run: TuningRun, goal: SearchGoal) -> None:
        self.run = run
        self._loop = TuningLoop(run, goal, run.space.target, run.reusable_records())
        self._reason: str | None = None
        self._aborted: MeasurementAborted | None = None
        self._confirmation: Confirmation | None = None
        self._is_resumed = False
        run.charge_phase("start")

    @property
    def ended(self) -> bool:
        """Whether the budget, the results or an abort end the search."""
        return self._reason is not None or self._aborted is not None

    def step(self, most: int = MAX_BATCH) -> None:
        """Measure one batch of at most `most` trials. The first step first enters the trials of an
        earlier process."""
        try:
            if not self._is_resumed:
                self._is_resumed = True
                self._loop.resume()
            self.run.control.pause()
            self._reason = self._loop.step(most)
        except MeasurementAborted as aborted:
            self._aborted = aborted

    def check_fastest(self) -> None:
        """Check the fastest candidate so far in full now, if there is one. The end of the run does
        not repeat the check."""
        timed = [trial for trial in self.run.trials if trial.record.result.ok]
        fastest = min(timed, key=lambda t: t.record.result.run_secs_estimate or inf, default=None)
        if fastest is None or fastest.key in self.run.confirmed:
            return
        try:
            confirm(self.run, fastest.record)
        except MeasurementAborted as aborted:
            self._aborted = aborted

    def begin_finish(self, *, race: bool = True) -> bool:
        """Begin to confirm the best candidate, after the final race if `race`. Return whether a
        full check runs now, during which the caller may do other work; `finish` waits for it."""
        if self._aborted is not None:
            return False
        control = self.run.control
        try:
            if not self.run.trials and not control.may_begin():
                raise control.out_of_time()
            control.pause()
            self._confirmation = Confirmation(self.run, race=race)
            return self._confirmation.begin()
        except MeasurementAborted as aborted:
            self._aborted = aborted
            return False

    def finish(self, reason: str | None = None) -> TuneReport:
        """Confirm the best candidate and return the report.

        `reason` is the caller's reason to end the search, if the session has none itself.
        """
        run, best = self.run, None
        if self._confirmation is None and self.begin_finish() and self._confirmation is not None:
            run.options.beside_check(self._confirmation.fastest_trace)
        if self._confirmation is not None and self._aborted is None:
            try:
                best = self._confirmation.finish()
            except MeasurementAborted as aborted:
                self._aborted = aborted
        why = self._reason or reason or STOPPED
        if self._aborted is not None:
            best, why = confirmed_before(run), str(self._aborted)
        if best is not None and best.result.run_secs_estimate is not None:
            self._loop.ending.check_bound(best.result.run_secs_estimate)
            run.bound.finalise(best.result.run_secs_estimate, keep=run.measured_now)
        run.charge_phase("store")
        why = explain(why, run.trials, run.rejected.values(), found=best is not None)
        report = summary.report(run, best, why)
        if not isinstance(self._aborted, OutOfTime):
            return report
        return replace(report, out_of_time=_out_of_time_document(run, self._aborted))


def run_session(
    workload: Workload,
    space: ScheduleSpace,
    *,
    measurer: Measurer,
    sink: RecordSink,
    strategy: str = "annealing",
    budget: Budget = DEFAULT_BUDGET,
    seed: int = 0,
    on_event: EventHandler = lambda event: None,
    options: SessionOptions | None = None,
) -> TuneReport:
    """Tune `workload` over `space` and return the whole report.

    Every trial is stored in `sink` as soon as it is measured, and then reported to `on_event`;
    reused trials of earlier runs are reported too. The best candidate is rebuilt, verified in full,
    stored and promoted; `report.best` is None if no candidate passed. Raise StrategyError for an
    unknown strategy.

    An exception raised by `on_event`, and KeyboardInterrupt, ends the run immediately and
    propagates; measured trials stay stored. MeasurementAborted, raised by the measurer or
    `options.control`, ends the run with the best candidate that was confirmed before, if any.
    OutOfTime does so too, if the time budget, counted from the control's start, ends before the
    full check does.
    """
    session = begin_session(
        workload,
        space,
        measurer=measurer,
        sink=sink,
        strategy=strategy,
        budget=budget,
        seed=seed,
        on_event=on_event,
        options=options or SessionOptions(),
    )
    while not session.ended:
        session.step()
    return session.finish()


def begin_session(
    workload: Workload,
    space: ScheduleSpace,
    *,
    measurer: Measurer,
    sink: RecordSink,
    strategy: str,
    budget: Budget,
    seed: int,
    on_event: EventHandler,
    options: SessionOptions,
) -> TuningSession:
    """Return a session that has measured nothing yet; the arguments are those of `run_session`."""
    control = options.control
    control.allow(budget.seconds)
    control.reserve_secs = 0.0
    bound = RooflineBound(least_work(workload, space.forms), space.target, options.machine)
    if isinstance(measurer, TakesBound):
        measurer.take_bound(bound.current)

    def check() -> None:
        control.check()
        reason = run.out_of_time()
        if reason is not None:
            raise Stopped(reason)

    related, model = [], ModelInUse()
    if not options.fresh:
        begun = _begun(workload, space, measurer, sink, seed)
        timings = timings_of(measurer.toolchain)
        related = sink.related(workload, space.target, MAX_WORKLOADS, begun)
        model = model_in_use(sink.model(space.target, timings, begun))
    space, lent = lent_trials(space, related, measurer.toolchain, control.check)
    goal = SearchGoal(
        seed,
        bound.goal_secs,
        check,
        lent.trials,
        model.correction,
        lent.spelled,
        lent.spelled_trials,
    )
    run = TuningRun(
        workload=workload,
        space=space,
        strategy=make_strategy(strategy, space, goal),
        measurer=measurer,
        sink=sink,
        budget=budget,
        seed=seed,
        on_event=on_event,
        options=options,
        bound=bound,
        model=model,
        lent=lent,
    )
    return TuningSession(run, goal)


def _begun(
    workload: Workload, space: ScheduleSpace, measurer: Measurer, sink: RecordSink, seed: int
) -> str:
    """Return when this search first began, "" for now: only what the database knew then is used.
    With later records or models, a second run would propose other candidates and could not reuse
    the trials of the first."""
    own = sink.records(workload.key, space.target.key)
    begun = [r.created_at for r in own if r.seed == seed and r.toolchain == measurer.toolchain]
    return min(begun, default="")


def _out_of_time_document(run: TuningRun, over: OutOfTime) -> dict[str, Any]:
    """Return a description of the run's activity when its time budget ended."""
    activity = run.control.activity
    return {
        "during": activity.phase,
        "done": activity.done,
        "total": activity.total,
        "would_do_secs": over.would_do_secs,
    }
