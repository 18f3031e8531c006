"""`tune(workload, target)`: the whole job in one call, for programs and for the command line."""

from __future__ import annotations

from collections.abc import Callable

from schedules.target import Target
from schedules.workload import Workload

from .measure.protocol import MeasurerFactory
from .report import Budget, RecordSink, TrialEvent, TuneReport


def tune(
    workload: Workload,
    target: Target | None = None,
    *,
    budget: Budget | None = None,
    strategy: str = "annealing",
    seed: int = 0,
    measurer: str | MeasurerFactory = "local",
    sink: RecordSink | None = None,
    on_event: Callable[[TrialEvent], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
    fresh: bool = False,
) -> TuneReport:
    """Find the fastest correct schedule of `workload` on `target` (default: this machine).

    Results go to `sink` (default: memory, kept only for this call) as they are measured, and what
    is in it already is used unless `fresh`. `measurer` is a name ("local", "replay:FILE",
    "simulated:FILE", "dask:tcp://HOST:PORT") or a factory. MeasurerError, StrategyError,
    TargetError for what cannot be; what fails on the machine is counted in the report.
    """
    from schedules.rules import space_for

    from .measure.choose import parse_measurer
    from .memory_sink import MemorySink
    from .native_target import ThisMachine, native_target, unprobed_target
    from .session import SessionOptions, run_session

    # Recorded and simulated times, and those of another factory, are not this machine's.
    machine = ThisMachine() if measurer == "local" else None
    should_stop = should_stop or _never
    factory = parse_measurer(measurer, should_stop) if isinstance(measurer, str) else measurer
    if target is None and isinstance(measurer, str) and measurer.startswith("dask:"):
        from .measure.fleet.machines import fleet_status, fleet_target

        target = fleet_target(fleet_status(measurer[5:]), "native", None, unprobed_target())
    elif target is None:
        target = unprobed_target() if machine is None else native_target()
    with factory(workload, target, seed) as opened:
        return run_session(
            workload,
            space_for(workload, target),
            measurer=opened,
            sink=MemorySink() if sink is None else sink,
            strategy=strategy,
            budget=budget or Budget(),
            seed=seed,
            on_event=on_event or _ignore,
            options=SessionOptions(fresh=fresh, machine=machine, should_stop=should_stop),
        )


def _ignore(event: TrialEvent) -> None:
    """Nobody is listening."""


def _never() -> bool:
    return False
