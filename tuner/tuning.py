"""The functions `tune` and `tune_many`: whole tuning runs, for programs and the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from .many.entries import ManyEntry, distinct_tasks
from .many.report import ManyEvent, ManyReport
from .measure.protocol import MeasurerFactory
from .process.control import Control, Controllable
from .session.memory_sink import MemorySink
from .session.report import Budget, PreviousTrial, RecordSink, TrialEvent, TuneReport

if TYPE_CHECKING:
    from .compiling.pool import CompilePool


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
    pool: CompilePool | None = None,
    beside_check: Callable[[Trace], None] | None = None,
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

    `pool` has compile workers for the measurer "local", which the caller ends. `beside_check` is
    called with the fastest schedule when its full check has been timed and still runs.
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
    if pool is not None and measurer == "local":
        # Start-up: a run with another measurer does not load this one.
        from .measure.local import LocalMeasurer

        factory = partial(LocalMeasurer, pool=pool)
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
                beside_check=beside_check or _ignore,
            ),
        )


def tune_many(
    entries: Sequence[ManyEntry],
    target: Target | str | None = None,
    *,
    budget: Budget | None = None,
    strategy: str = "annealing",
    seed: int = 0,
    measurer: str | MeasurerFactory = "local",
    sink: RecordSink | None = None,
    on_event: Callable[[ManyEvent], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    fresh: bool = False,
    control: Control | None = None,
) -> ManyReport:
    """Tune several workloads under one budget, and return a report with one report per workload.

    Equal workloads are one task, whose weight is the sum of theirs. `budget.trials` limits each
    task and `budget.seconds` the whole run; the next trials go to the task with the greatest
    expected gain in weighted seconds. A task that fails does not end the others. Raise ManyError
    for an invalid list, which is checked first. The other arguments and errors are those of `tune`.
    """
    # Start-up: as in `tune`.
    from .machine.native_target import ThisMachine, probe_target
    from .many.run import run_many
    from .measure.measurer_spec import measured_target, parse_measurer

    specs = distinct_tasks(entries)
    budget = budget or Budget()
    control = control or Control()
    control.allow(budget.seconds)
    machine = None
    if measurer == "local":
        machine = ThisMachine(prober=partial(probe_target, control=control))
    should_stop = should_stop or _never
    with ExitStack() as closing:
        factory: MeasurerFactory
        if measurer == "local":
            from .measure.shared_local import SharedLocal  # Start-up: as in `tune`

            factory = closing.enter_context(SharedLocal())
        elif isinstance(measurer, str):
            factory = parse_measurer(measurer, should_stop)
        else:
            factory = measurer
        if target is None or isinstance(target, str):
            named = measurer if isinstance(measurer, str) else ""
            target = measured_target(named, target or "native", control=control)
        return run_many(
            specs,
            target,
            measurers=factory,
            sink=MemorySink() if sink is None else sink,
            strategy=strategy,
            budget=budget,
            seed=seed,
            on_event=on_event or _ignore,
            should_stop=should_stop,
            fresh=fresh,
            machine=machine,
            control=control,
        )


def _ignore(event: object) -> None:
    """The default of `on_event`."""


def _never() -> bool:
    return False
