"""`tune(workload, target)`: the whole job in one call, for programs and for the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

from .measure.protocol import MeasurerFactory
from .process.control import Control, Controllable
from .session.memory_sink import MemorySink
from .session.report import Budget, PreviousTrial, RecordSink, TrialEvent, TuneReport


def tune(
    workload: Workload,
    target: Target | str | None = None,
    *,
    budget: Budget | None = None,
    strategy: str = "annealing",
    seed: int = 0,
    measurer: str | MeasurerFactory = "local",
    sink: RecordSink | None = None,
    on_event: Callable[[TrialEvent], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    fresh: bool = False,
    control: Control | None = None,
    previous_trials: Sequence[PreviousTrial] = (),
) -> TuneReport:
    """Find the fastest correct schedule of `workload` on `target` ("native", the default: this
    machine; or a target file's name).

    Results go to `sink` (default: memory, kept only for this call) as they are measured, and what
    is in it already is used unless `fresh`. `measurer` is a name ("local", "replay:FILE",
    "simulated:FILE", "dask:tcp://HOST:PORT") or a factory. MeasurerError, StrategyError,
    TargetError for what cannot be; what fails on the machine is counted in the report.

    `control` reaches the run from another thread and lets runs share a machine; once aborted, the
    run returns with what was checked before. OutOfTime where the budget's seconds, which count from
    the control's start, are over before there is a space to search. `previous_trials` are the
    trials of an earlier process of this very run, from its events: it goes on behind them.
    """
    # Start-up: `tune` is named where nothing is tuned, as in checking what was asked for.
    from tilewright.schedules.sketches import space_for

    from .machine.native_target import ThisMachine, probe_target
    from .measure.measurer_spec import measured_target, parse_measurer
    from .session.options import SessionOptions
    from .session.run import run_session

    # Recorded and simulated times, and those of another factory, are not this machine's.
    budget = budget or Budget()
    control = control or Control()
    control.allow(budget.seconds)
    prober = partial(probe_target, control=control)
    machine = ThisMachine(prober=prober) if measurer == "local" else None
    should_stop = should_stop or _never
    factory = parse_measurer(measurer, should_stop) if isinstance(measurer, str) else measurer
    if target is None or isinstance(target, str):
        named = measurer if isinstance(measurer, str) else ""
        target = measured_target(named, target or "native", control=control)
    made = factory(workload, target, seed)
    if isinstance(made, Controllable):
        made.attach(control)
    with made as opened:
        return run_session(
            workload,
            space_for(workload, target, control.check),
            measurer=opened,
            sink=MemorySink() if sink is None else sink,
            strategy=strategy,
            budget=budget,
            seed=seed,
            on_event=on_event or _ignore,
            options=SessionOptions(
                fresh=fresh,
                machine=machine,
                should_stop=should_stop,
                control=control,
                previous_trials=previous_trials,
            ),
        )


def _ignore(event: TrialEvent) -> None:
    """Nobody is listening."""


def _never() -> bool:
    return False
