"""Several tasks at work at the same time, because other machines measure."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.tuner.scripted import Scripted, ok
from tilewright.schedules.record import MeasureResult, TuningRecord
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.machine.native_target import unprobed_target
from tilewright.tuner.many.entries import ManyEntry
from tilewright.tuner.many.report import ManyEvent, ManyReport
from tilewright.tuner.measure.protocol import MeasureRequest, OnResult
from tilewright.tuner.process.control import Control
from tilewright.tuner.session.memory_sink import MemorySink
from tilewright.tuner.session.report import Budget
from tilewright.tuner.session.stopping_rule import MAX_BATCH
from tilewright.tuner.tuning import tune, tune_many

# The order of the work: the first workload is the largest, so its first turn is before all others.
FIRST, SECOND, THIRD = (parse_workload(f"matmul:M={8 * n},N=16,K=8") for n in (3, 2, 1))
TARGET = unprobed_target(1)
TRIALS = MAX_BATCH + 4
LATE_SECS = 60.0
"""A test that waits so long has failed."""

Wait = Callable[[str, MeasureRequest], None]


@dataclass
class Hosts:
    """A factory of measurers on `machines` other machines.

    `measures` and `confirms` are called with the workload's key and the request while nothing else
    of the task runs. `waiting` are the keys of the tasks that are in such a call.
    """

    machines: int = 2
    measures: Wait = lambda key, request: None
    confirms: Wait = lambda key, request: None
    opened: dict[str, Elsewhere] = field(default_factory=dict)
    most_at_once: int = 0
    waiting: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, workload: Workload, target: Target, seed: int) -> Elsewhere:
        self.opened[workload.key] = Elsewhere(falling, key=workload.key, hosts=self)
        return self.opened[workload.key]

    @contextmanager
    def busy(self, key: str) -> Iterator[None]:
        with self.lock:
            self.waiting.add(key)
            self.most_at_once = max(self.most_at_once, len(self.waiting))
        try:
            yield
        finally:
            with self.lock:
                self.waiting.discard(key)


@dataclass
class Elsewhere(Scripted):
    """A measurer that waits for other machines."""

    key: str = ""
    hosts: Hosts = field(default_factory=Hosts)
    control: Control = field(default_factory=Control)

    @property
    def machines(self) -> int:
        return self.hosts.machines

    def attach(self, control: Control) -> None:
        self.control = control

    def measure(
        self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
    ) -> list[MeasureResult]:
        for request in requests:
            with self.control.elsewhere(), self.hosts.busy(self.key):
                self.hosts.measures(self.key, request)
        return super().measure(requests, on_result)

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        with self.control.elsewhere(), self.hosts.busy(self.key):
            self.hosts.confirms(self.key, request)
        return super().confirm(request)

    def confirm_secs(self, result: MeasureResult) -> float:
        return 1.0


def falling(request: MeasureRequest) -> MeasureResult:
    return replace(ok(1e-3 * (1.0 - 0.01 * request.trial)), measure_secs=1.0)


def run(hosts: Hosts, workloads: Sequence[Workload] = (FIRST, SECOND), **more: Any) -> ManyReport:
    more.setdefault("budget", Budget(TRIALS))
    entries = [ManyEntry(workload) for workload in workloads]
    return tune_many(entries, TARGET, measurer=hosts, strategy="random", **more)


def happens(event: threading.Event) -> None:
    assert event.wait(LATE_SECS)


def test_a_task_is_checked_in_full_while_another_one_measures() -> None:
    checks, measured = threading.Event(), threading.Event()

    def measures(key: str, request: MeasureRequest) -> None:
        if key == SECOND.key and request.trial == TRIALS and not request.compared:
            happens(checks)
            measured.set()

    def confirms(key: str, request: MeasureRequest) -> None:
        if key == FIRST.key:
            checks.set()
            happens(measured)

    assert run(Hosts(measures=measures, confirms=confirms)).complete


def test_batches_and_checks_of_all_tasks_overlap() -> None:
    batches, checks = threading.Barrier(3), threading.Barrier(3)

    def measures(key: str, request: MeasureRequest) -> None:
        if request.trial == TRIALS and not request.compared:
            batches.wait(LATE_SECS)

    def confirms(key: str, request: MeasureRequest) -> None:
        checks.wait(LATE_SECS)

    hosts = Hosts(3, measures, confirms)
    assert run(hosts, [FIRST, SECOND, THIRD]).complete
    assert hosts.most_at_once == 3


@pytest.mark.parametrize("machines", [0, 1])
def test_one_machine_has_one_task(machines: int) -> None:
    hosts = Hosts(machines)
    assert run(hosts).complete
    assert hosts.most_at_once == 1


def test_each_task_finds_what_it_finds_alone() -> None:
    hosts = Hosts()
    many = run(hosts, [FIRST, SECOND, THIRD])
    for task, workload in zip(many.tasks, (FIRST, SECOND, THIRD), strict=True):
        alone = Hosts(1)
        single = tune(workload, TARGET, measurer=alone, budget=Budget(TRIALS), strategy="random")
        assert task.report is not None
        assert (task.report.best, task.report.trials) == (single.best, single.trials)
        assert [r.trace for r in hosts.opened[workload.key].requests] == [
            r.trace for r in alone.opened[workload.key].requests
        ]


class Alone:
    """Fails if two threads are in its blocks at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: Counter[str] = Counter()

    @contextmanager
    def call(self, name: str) -> Iterator[None]:
        assert self._lock.acquire(blocking=False), f"{name} is called beside another function"
        try:
            self.calls[name] += 1
            threading.Event().wait(1e-4)  # lets another thread come, if it can
            yield
        finally:
            self._lock.release()


class AloneSink(MemorySink):
    def __init__(self, alone: Alone) -> None:
        self._alone = alone
        super().__init__()

    def add(self, records: Sequence[TuningRecord]) -> None:
        with self._alone.call("sink"):
            super().add(records)


def test_functions_of_the_caller_are_called_one_at_a_time() -> None:
    alone = Alone()

    def on_event(event: ManyEvent) -> None:
        with alone.call("event"):
            pass

    def on_activity(activity: object) -> None:
        with alone.call("activity"):
            pass

    def should_stop() -> bool:
        with alone.call("stop"):
            return False

    report = run(
        Hosts(3),
        [FIRST, SECOND, THIRD],
        on_event=on_event,
        should_stop=should_stop,
        sink=AloneSink(alone),
        control=Control(on_activity=on_activity),
    )
    assert report.complete
    assert alone.calls.keys() == {"event", "activity", "stop", "sink"}


def test_an_error_of_a_task_does_not_end_the_one_beside_it() -> None:
    failed = threading.Event()

    def measures(key: str, request: MeasureRequest) -> None:
        if request.trial > MAX_BATCH and key == SECOND.key:
            failed.set()
            raise KeyError("lost")
        if request.trial > MAX_BATCH:
            happens(failed)

    first, second = run(Hosts(measures=measures)).tasks
    assert first.error is None
    assert first.best is not None
    assert second.error is not None
    assert second.error.code == "bug"
    assert second.best is not None, "what was measured before the error is confirmed"


@dataclass
class Meeting:
    """Two tasks wait until they are aborted, as soon as both are there; `both` is called then."""

    both: Callable[[], None]
    barrier: threading.Barrier = field(init=False)
    hosts: Hosts = field(init=False)

    def __post_init__(self) -> None:
        self.barrier = threading.Barrier(2, action=self.both)
        self.hosts = Hosts(measures=self.measures)

    def measures(self, key: str, request: MeasureRequest) -> None:
        if key != FIRST.key or request.trial > MAX_BATCH:
            aborted = threading.Event()
            control = self.hosts.opened[key].control
            control.on_abort(aborted.set)
            self.barrier.wait(LATE_SECS)
            happens(aborted)
            control.check()


def test_an_abort_ends_all_tasks_that_are_at_work() -> None:
    control = Control()
    meeting = Meeting(lambda: threading.Thread(target=control.abort).start())
    report = run(meeting.hosts, control=control)
    assert report.stopped_because == "stopped on request"
    assert [task.error and task.error.code for task in report.tasks] == ["no_best", "no_best"]
    assert not meeting.hosts.waiting


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_an_exception_of_the_caller_ends_the_run_and_the_task_beside(error: BaseException) -> None:
    """The second task waits for its machines; the listener fails at a trial of the first one."""
    waits, aborted, events = threading.Event(), threading.Event(), []

    def measures(key: str, request: MeasureRequest) -> None:
        if key == SECOND.key:
            hosts.opened[key].control.on_abort(aborted.set)
            waits.set()
            happens(aborted)
        elif request.trial > MAX_BATCH:
            happens(waits)

    def listen(event: ManyEvent) -> None:
        events.append(event)
        if event.trial is not None and event.trial.trial > MAX_BATCH:
            raise error

    hosts, sink = Hosts(measures=measures), MemorySink()
    with pytest.raises(type(error)) as raised:
        run(hosts, on_event=listen, sink=sink)
    assert raised.value is error
    assert not hosts.waiting
    assert events[-1].trial is not None, "nothing is reported after it"
    assert len(sink.records(FIRST.key, TARGET.key)) == MAX_BATCH + 1
    assert not sink.records(SECOND.key, TARGET.key)
    again = run(Hosts(), sink=sink)
    assert [task.report and task.report.trials["measured_now"] for task in again.tasks] == [
        TRIALS - MAX_BATCH - 1,
        TRIALS,
    ]


@dataclass
class Clock:
    """A clock that each measurement moves by its share of a second."""

    secs: float = 0.0
    shares: int = 2
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self) -> float:
        return self.secs

    def move(self, *_: object) -> None:
        with self.lock:
            self.secs += 1.0 / self.shares


def test_seconds_bound_the_whole_and_bests_are_confirmed() -> None:
    clock = Clock()
    hosts = Hosts(measures=clock.move, confirms=clock.move)
    report = run(
        hosts,
        [FIRST, SECOND, THIRD],
        budget=Budget(trials=500, seconds=40.0),
        control=Control(now=clock),
    )
    assert report.complete
    assert all(task.trials < 500 for task in report.tasks)
    assert 20.0 < clock.secs < 60.0, "of hundreds that all trials would take"
