"""The function `tune(workload, target)`: a whole tuning run, for programs and the command line."""

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
    """Find the fastest correct schedule of `workload` on `target`: "native" (default) or a file's
    name.

    Results are stored in `sink` (default: memory, for this call only) once they are measured. Its
    earlier records are used unless `fresh`. `measurer` is a name ("local", "replay:FILE",
    "simulated:FILE", "dask:tcp://HOST:PORT") or a factory. Raise MeasurerError, StrategyError or
    TargetError for invalid arguments; failures on the machine are counted in the report.

    `control` controls the run from another thread and lets runs share a machine. An aborted run
    returns the best candidate that was fully checked before. Raise OutOfTime if the time budget,
    which starts with `control`, ends before there is a space to search. `previous_trials` are the
    trials of an earlier process of this run, from its events; the run resumes after them.
    """
    # Start-up: importing `tune` must load little, for commands that only check their arguments.
    from tilewright.schedules.sketches import space_for

    from .machine.native_target import ThisMachine, probe_target
    from .measure.measurer_spec import measured_target, parse_measurer
    from .session.options import SessionOptions
    from .session.run import run_session

    # Only the local measurer times kernels on this machine.
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
    """The default of `on_event`."""


def _never() -> bool:
    return False
