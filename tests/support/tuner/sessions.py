"""Sessions on a small space whose machine is simulated or scripted."""

from __future__ import annotations

from typing import Any

from tests.support.synthetic_sketch import synthetic_space
from tests.support.tuner.scripted import ok
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.schedules.space import ScheduleSpace
from tilewright.tuner.measure.mocked.simulated import SimulatedMachine, SimulatedMeasurer
from tilewright.tuner.measure.protocol import MeasureRequest
from tilewright.tuner.process.control import Control
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.options import SessionOptions
from tilewright.tuner.session.report import Budget
from tilewright.tuner.session.run import run_session

OK = MeasureStatus.OK


def space() -> ScheduleSpace:
    return synthetic_space(64, 64, 64, small=True)


def simulated(**settings: Any) -> SimulatedMeasurer:
    return SimulatedMeasurer(SimulatedMachine(**settings), space().workload)


def by_trial(request: MeasureRequest) -> MeasureResult:
    return ok(1e-3 / (1 + request.trial % 7) + 1e-9 * request.trial)


def tune(measurer: Any, sink: MemorySink | None = None, **more: Any) -> Any:
    options = SessionOptions(
        fresh=more.pop("fresh", False),
        control=Control(now=more.pop("clock", lambda: 0.0)),
        timestamp=lambda: "2026-01-01T00:00:00Z",
        should_stop=more.pop("should_stop", lambda: False),
        previous_trials=more.pop("begun", ()),
        beside_check=more.pop("beside_check", lambda trace: None),
    )
    more.setdefault("budget", Budget(trials=24))
    workload = space().workload
    return run_session(
        workload,
        more.pop("space", space()),
        measurer=measurer,
        sink=MemorySink() if sink is None else sink,
        options=options,
        **more,
    )


def stored_in(sink: MemorySink) -> int:
    return len(sink.records(space().workload.key, space().target.key))


def work() -> tuple[str, str]:
    return space().workload.key, space().target.key
