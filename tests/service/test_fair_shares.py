"""Owners share the machine by the seconds they use, whatever their jobs say that they cost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from tests.support.service.jobs import SETTINGS, read
from tests.support.service.records import HOST, MATMUL, fake_run
from tilewright.db import Store
from tilewright.db.values.job_states import JobState
from tilewright.db.values.jobs import StoredJob, WaitingJob
from tilewright.schedules.errors import TilewrightError
from tilewright.service.answers.publish import Published
from tilewright.service.jobs.queue import choose, order
from tilewright.service.jobs.request import read_job
from tilewright.service.jobs.run import JobContext
from tilewright.service.jobs.time_slices import TimeSlices
from tilewright.service.jobs.worker import Worker
from tilewright.tuner.process.control import Activity, Control

PATIENCE_SECS, REAL_PATIENCE_SECS, SLOW_SECS = 60.0, 300.0, 20.0
"""Bounds for a machine under any load: what is bounded would take minutes each."""


class _NotNowError(TilewrightError):
    """It is the turn of another."""


class Machine:
    """Jobs in turns by a clock that only their work moves."""

    def __init__(self) -> None:
        self.secs = 0.0
        self.time_slices = TimeSlices(turn_secs=2.0, clock=lambda: self.secs, look_secs=0.0)
        self.used: dict[str, float] = {}

    def first(self, names: list[str]) -> str:
        """Whose turn it is."""

        def not_now(before: int) -> None:
            assert before > 0
            raise _NotNowError("it is another's turn")

        for name in names:
            try:
                self.time_slices.wait(name, not_now)
            except _NotNowError:
                continue
            return name
        raise AssertionError("it is nobody's turn")

    def work(self, steps: dict[str, float], secs: float) -> None:
        """Let jobs work, each in steps of so many seconds, until so many are over."""
        end = self.secs + secs
        while self.secs < end:
            name = self.first(list(steps))
            self.secs += steps[name]
            self.used[name] = self.used.get(name, 0.0) + steps[name]
            with suppress(_NotNowError):
                self.time_slices.take_turn(name, self._not_now)

    @staticmethod
    def _not_now(before: int) -> None:
        raise _NotNowError("it is another's turn")

    @contextmanager
    def participate(self, **owners: str) -> Iterator[None]:
        with ExitStack() as row:
            for name, owner in owners.items():
                row.enter_context(self.time_slices.participate(name, owner))
            yield


def test_jobs_of_one_owner_go_round() -> None:
    machine = Machine()
    with machine.participate(a="x", b="x", c="x"):
        machine.work({"a": 0.5, "b": 1.0, "c": 0.25}, 60.0)
    assert max(machine.used.values()) - min(machine.used.values()) <= 2.0


def test_owners_share_by_the_seconds_they_use() -> None:
    machine = Machine()
    steps = {"h1": 7.0, "h2": 7.0, "h3": 7.0, "h4": 7.0, "other": 0.5}
    with machine.participate(h1="hostile", h2="hostile", h3="hostile", h4="hostile", other="other"):
        machine.work(steps, 140.0)
    assert machine.used["other"] == pytest.approx(70.0, abs=9.0)


def test_a_turn_that_lasts_too_long_is_paid_for() -> None:
    machine = Machine()
    with machine.participate(long="hostile", short="other"):
        machine.work({"long": 100.0, "short": 0.5}, 0.1)
        assert machine.first(["long", "short"]) == "short"
        machine.work({"long": 100.0, "short": 0.5}, 95.0)
        assert machine.used == {"long": 100.0, "short": pytest.approx(95.0)}
        assert not machine.time_slices.slice_is_over("short"), (
            "the others have it until they are level"
        )
        machine.work({"long": 100.0, "short": 0.5}, 8.0)
        assert machine.used["long"] == 200.0, "then it is the other's turn again"


def test_who_comes_late_has_no_credit_and_who_comes_back_keeps_a_debt() -> None:
    machine = Machine()
    with machine.participate(old="old"):
        machine.work({"old": 1.0}, 1000.0)
        with machine.participate(new="new"):
            machine.used.clear()
            machine.work({"old": 1.0, "new": 1.0}, 40.0)
            assert machine.used["new"] == pytest.approx(20.0, abs=2.0)
            with machine.participate(hostile="hostile"):
                machine.work({"old": 1.0, "new": 1.0, "hostile": 50.0}, 60.0)
            with machine.participate(again="hostile"):
                machine.used.clear()
                machine.work({"old": 1.0, "new": 1.0, "again": 50.0}, 20.0)
                assert "again" not in machine.used


# -- who is let in


def job(number: int, owner: str, trials: int = 1, **more: Any) -> WaitingJob:
    return WaitingJob(str(number), trials, owner=owner, **more)


def taken(waiting: list[WaitingJob], open_owners: list[str]) -> str | None:
    found = choose(waiting, slots=3, open_owners=open_owners, has_oldest=True)
    return None if found is None else found.id


def test_an_owner_with_nothing_open_finds_a_place_where_all_are_taken() -> None:
    hostile = [job(n, "hostile") for n in range(9)]
    assert taken(hostile, ["hostile"] * 3) is None
    assert taken([*hostile, job(10, "other", trials=5000)], ["hostile"] * 3) == "10"
    assert taken([*hostile, job(10, "other")], ["hostile"] * 3 + ["other"]) is None
    assert taken([job(10, "z")], ["hostile"] * 3 + ["a", "b", "c"]) is None, "there is an end"


def test_the_owner_with_fewest_open_is_next_whatever_jobs_claim() -> None:
    hostile = [job(n, "hostile", trials=1) for n in range(9)]
    other = job(10, "other", trials=64)
    assert taken([*hostile, other], ["hostile"]) == "10"
    assert taken([*hostile, other], ["hostile", "other"]) == "0"
    urgent = job(11, "hostile", priority=3)
    assert taken([urgent, other], ["hostile"]) == "11", "a higher priority goes before all of this"


def test_owners_are_lined_up_in_turns() -> None:
    hostile = [job(n, "hostile", trials=1) for n in range(3)]
    lined_up = order([*hostile, job(10, "other", trials=64), job(11, "third", trials=4)])
    assert [found.id for found in lined_up] == ["0", "11", "10", "1", "2"]


def test_the_queue_knows_whose_jobs_wait(store: Store) -> None:
    first = submitted(store, "a", seed=1)
    nobodys = submitted(store, None, seed=2)
    assert {found.id: found.owner for found in store.job_queue()} == {first.id: "a", nobodys.id: ""}


def submitted(store: Store, owner: str | None, **fields: Any) -> StoredJob:
    request = read_job({"workload": MATMUL, "target": HOST.to_json(), **fields}, SETTINGS)
    found, created = store.create_job(
        request.to_json(), body_hash="x", flight_key=request.flight_key, owner=owner
    )
    assert created
    return found


# -- from end to end


def test_a_foreign_job_ends_beside_four_hostile_ones(store: Store) -> None:
    """Theirs claim to be short, and check for ever; only their seconds end them."""
    hostile = [
        submitted(store, "hostile", seed=n, budget={"trials": 1, "seconds": 3600.0})
        for n in range(4)
    ]
    stop, checking = threading.Event(), threading.Event()

    def run(s: Store, w: Any, t: Any, options: Any, *more: Any, control: Control, **_: Any) -> Any:
        if options.budget.trials == 1:
            case = 0
            while True:
                control.doing(Activity("full check", "the full check", case, 1000))
                control.check()
                checking.set()
                time.sleep(0.02)
                case += 1
                if control.is_wanted():
                    control.pause()
        return fake_run(4, before=lambda trial: control.pause())(s, w, t, options, *more)

    context = JobContext(
        store, 5.0, stop, TimeSlices(turn_secs=0.05), run=run, publish=lambda *_: Published()
    )
    thread = threading.Thread(target=Worker(context, "test", poll_secs=0.01).work)
    thread.start()
    try:
        assert checking.wait(PATIENCE_SECS)
        foreign = submitted(store, "other", seed=9, budget={"trials": 4})
        end = time.monotonic() + PATIENCE_SECS
        while not read(store, foreign).done:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert read(store, foreign).state is JobState.SUCCEEDED
        states = [read(store, found).state for found in hostile]
        assert JobState.RUNNING in states
        assert JobState.SUCCEEDED not in states
    finally:
        stop.set()
        thread.join(PATIENCE_SECS)


def test_a_job_whose_seconds_are_over_says_so(store: Store) -> None:
    found = submitted(store, "a", budget={"trials": 4, "seconds": 0.25})

    def run(*_: Any, control: Control, **_more: Any) -> Any:
        while True:
            control.doing(Activity("reference", "computing the reference"))
            time.sleep(0.05)
            control.check()

    context = JobContext(store, 5.0, threading.Event(), run=run, publish=lambda *_: Published())
    assert Worker(context, "test").work_once()
    ended = read(store, found)
    assert ended.state is JobState.FAILED
    assert ended.error is not None
    assert ended.error["code"] == "out_of_time"
    assert "0.25 s ended during computing the reference" in ended.error["detail"]
    assert ended.progress["phase"] == "reference"
    told = [e.data for e in store.events_after(found.id) if e.kind == "activity"]
    assert [activity["phase"] for activity in told] == ["reference"]


def test_seconds_that_an_earlier_lease_used_are_gone(store: Store) -> None:
    found = submitted(store, "a", budget={"trials": 4, "seconds": 100.0})
    leased = store.lease_job("first", 60.0)
    assert leased is not None
    store.report_job(found.id, leased.epoch, progress={"used_secs": 30.0})
    store.release_job(found.id, leased.epoch)
    left: list[float] = []

    def run(*words: Any, control: Control, **more: Any) -> Any:
        left.append(control.left_secs)
        return fake_run()(*words, **more)

    context = JobContext(
        store, 60.0, threading.Event(), run=run, publish=lambda *_: Published(), clock=lambda: 5.0
    )
    assert Worker(context, "test").work_once()
    assert left == [70.0]


def test_waiting_for_a_turn_uses_no_seconds(store: Store) -> None:
    now = [0.0]
    found = submitted(store, "a", budget={"trials": 4, "seconds": 10.0})
    time_slices = TimeSlices()
    used: list[float] = []

    def run(*words: Any, control: Control, **more: Any) -> Any:
        used.append(control.used_secs)
        return fake_run()(*words, **more)

    context = JobContext(
        store, 60.0, threading.Event(), time_slices, run=run, publish=lambda *_: Published(),
        clock=lambda: now[0],
    )  # fmt: skip
    with time_slices.participate("another", "b"):
        thread = threading.Thread(target=Worker(context, "test").work_once)
        thread.start()
        end = time.monotonic() + PATIENCE_SECS
        while "1 other job" not in str(read(store, found).progress.get("waiting_for")):
            assert time.monotonic() < end
            now[0] += 0.3  # the journal is written in time
            time.sleep(0.02)
        now[0] += 500.0
    thread.join(PATIENCE_SECS)
    assert read(store, found).state is JobState.SUCCEEDED
    assert used == [pytest.approx(0.0, abs=5.0)]


def test_a_foreign_job_ends_beside_four_hostile_ones_on_this_machine(store: Store) -> None:
    """A trial and a full check of theirs take long, and are to take two seconds each."""
    square = "f32[1024,1024]"
    heavy = {"expr": "Y[i,j] max= X[i,k]*X[i,k]+W[k,j]", "tensors": {"X": square, "W": square}}
    hostile = [
        submitted(
            store, "hostile", workload=heavy, target="native", seed=n,
            budget={"trials": 1, "seconds": 2.0},
        )
        for n in range(4)
    ]  # fmt: skip
    stop = threading.Event()
    context = JobContext(store, 5.0, stop, publish=lambda *_: Published())
    thread = threading.Thread(target=Worker(context, "test", poll_secs=0.05).work)
    thread.start()
    end = time.monotonic() + REAL_PATIENCE_SECS
    try:
        while not any(read(store, n).progress.get("phase") or read(store, n).done for n in hostile):
            assert time.monotonic() < end
            time.sleep(0.1)
        foreign = submitted(store, "other", target="native", seed=9, budget={"trials": 4})
        jobs = [foreign, *hostile]
        while not all(read(store, found).done for found in jobs):
            assert time.monotonic() < end
            time.sleep(0.1)
    finally:
        stop.set()
        thread.join(PATIENCE_SECS)
    assert read(store, foreign).state is JobState.SUCCEEDED
    for found in hostile:
        ended = read(store, found)
        assert ended.state is JobState.SUCCEEDED or ended.error, "a reason"
        assert float(ended.progress["used_secs"]) < 2.0 + SLOW_SECS
