"""The tuning session: propose, measure and store candidates until the stopping rule ends it.

Only this module combines all parts; each part is an argument. An interrupted run is resumed by
running it again: the strategy is deterministic, so it proposes the same candidates, and candidates
with a stored record are not measured again. With `previous_trials` the strategy does not even
propose them again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilewright.schedules.full_checks import timings_of
from tilewright.schedules.related import MAX_WORKLOADS
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.workload.workload import Workload

from ..machine.least_work import least_work
from ..measure.protocol import Measurer, TakesBound
from ..process.control import MeasurementAborted, OutOfTime
from ..search.base import SearchGoal
from ..search.related import related_trials
from ..search.strategies import make_strategy
from . import summary
from .confirmation import confirm_best, confirmed_before
from .database_model import ModelInUse, model_in_use
from .loop import Stopped, TuningLoop
from .options import EventHandler, SessionOptions
from .report import Budget, RecordSink, TuneReport
from .roofline_bound import RooflineBound
from .trials import explain
from .tuning_run import TuningRun

DEFAULT_BUDGET = Budget()


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
    options = options or SessionOptions()
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

    related = [] if options.fresh else sink.related(workload, space.target.key, MAX_WORKLOADS)
    trials = related_trials(related, measurer.toolchain)
    model = ModelInUse()
    if not options.fresh:
        model = model_in_use(sink.model(space.target.key, timings_of(measurer.toolchain)))
    goal = SearchGoal(seed, bound.goal_secs, check, trials, model.correction)
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
    )
    return _run_to_end(run, goal)


def _run_to_end(run: TuningRun, goal: SearchGoal) -> TuneReport:
    control = run.control
    loop = TuningLoop(run, goal, run.space.target, run.reusable_records())
    run.charge_phase("start")
    reason, out_of_time = None, None
    try:
        loop.resume()
        while reason is None:
            control.pause()
            reason = loop.step()
        if not run.trials and not control.may_begin():
            raise control.out_of_time()
        control.pause()
        best = confirm_best(run)
    except OutOfTime as over:
        best, reason, out_of_time = confirmed_before(run), str(over), over
    except MeasurementAborted as aborted:
        best, reason = confirmed_before(run), str(aborted)
    if best is not None and best.result.run_secs_estimate is not None:
        loop.ending.check_bound(best.result.run_secs_estimate)
        run.bound.finalise(best.result.run_secs_estimate, keep=run.measured_now)
    run.charge_phase("store")
    why = explain(reason, run.trials, run.rejected.values(), found=best is not None)
    report = summary.report(run, best, why)
    return (
        report
        if out_of_time is None
        else replace(report, out_of_time=_out_of_time_document(run, out_of_time))
    )


def _out_of_time_document(run: TuningRun, over: OutOfTime) -> dict[str, Any]:
    """Return a description of the run's activity when its time budget ended."""
    activity = run.control.activity
    return {
        "during": activity.phase,
        "done": activity.done,
        "total": activity.total,
        "would_do_secs": over.would_do_secs,
    }
