"""Several jobs: who is next, whose turn it is, and that short ones do not wait for long ones."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service.jobs import queued, read
from tests.support.service.preparing import Counted, prepare_all
from tests.support.service.records import HOST, MATMUL, fake_run
from tilewright.db import Store
from tilewright.db.errors import StoreError
from tilewright.db.values.answers import Demand
from tilewright.db.values.job_states import JobState
from tilewright.db.values.jobs import StoredJob, WaitingJob
from tilewright.schedules.target import Target
from tilewright.service.answers.publish import Published
from tilewright.service.jobs.queue import SHORT_TRIALS, choose, order, position_of
from tilewright.service.jobs.run import JobContext
from tilewright.service.jobs.tickets import tickets_for
from tilewright.service.jobs.time_slices import TimeSlices
from tilewright.service.jobs.worker import Worker
from tilewright.service.jobs.yield_policy import YieldPolicy
from tilewright.service.resolve import toolchains, workloads
from tilewright.tuner.machine.native_target import native_target
from tilewright.tuner.process.control import MeasurementAborted

LONG, MIDDLE, SHORT = WaitingJob("1", 5000), WaitingJob("2", 500), WaitingJob("3", 4)


def chosen(waiting: list[WaitingJob], open_jobs: int, *, has_oldest: bool = True) -> str | None:
    job = choose(waiting, slots=3, open_owners=[""] * open_jobs, has_oldest=has_oldest)
    return None if job is None else job.id


def test_the_oldest_is_taken_then_the_shortest() -> None:
    waiting = [LONG, MIDDLE, SHORT]
    assert [job.id for job in order(waiting)] == ["1", "3", "2"]
    assert chosen(waiting, 0, has_oldest=False) == "1"
    assert chosen(waiting, 1) == "3"


def test_a_job_that_lost_its_worker_goes_on_first() -> None:
    lost = WaitingJob("9", 700, lost=True)
    assert order([LONG, SHORT, lost])[0] is lost
    assert chosen([LONG, SHORT, lost], 1) == "9"


def test_a_higher_priority_goes_before_all_of_this() -> None:
    urgent = WaitingJob("8", 900, priority=5)
    assert order([urgent, LONG, SHORT])[0] is urgent
    assert chosen([urgent, LONG, SHORT], 1) == "8"


def test_the_last_place_is_for_short_jobs() -> None:
    assert chosen([MIDDLE], 2) is None
    assert chosen([MIDDLE, WaitingJob("4", SHORT_TRIALS)], 2) == "4"
    assert chosen([SHORT], 3) is None
    assert choose([MIDDLE], slots=1, open_owners=[], has_oldest=False) is MIDDLE


def test_a_waiting_job_is_told_its_place_and_why(api: TestClient, store: Store) -> None:
    def submit(trials: int, seed: int) -> dict[str, Any]:
        body = {"workload": MATMUL, "target": HOST.to_json(), "seed": seed}
        answer = api.post("/v1/jobs", json={**body, "budget": {"trials": trials}})
        document: dict[str, Any] = answer.json()
        return document

    first, second, third = submit(5000, 1), submit(500, 2), submit(4, 3)
    assert first["queue"]["position"] == 1
    assert third["queue"]["position"] == 2, "a short one overtakes"
    told = api.get(f"/v1/jobs/{second['id']}").json()["queue"]
    assert told["position"] == 3
    assert "2 jobs are before" in told["reason"]
    assert position_of(store.job_queue(), "unknown") is None
    api.post(f"/v1/jobs/{first['id']}:cancel")
    assert api.get(f"/v1/jobs/{first['id']}").json()["queue"] is None


def test_turns_go_round_when_they_are_over() -> None:
    now = [0.0]
    time_slices = TimeSlices(turn_secs=2.0, clock=lambda: now[0])
    with time_slices.participate("a"), time_slices.participate("b"):
        assert not time_slices.slice_is_over("a"), "its time is not up"
        now[0] = 2.5
        assert time_slices.slice_is_over("a")
        assert not time_slices.slice_is_over("b"), "it is not its turn"

        def give_up(before: int) -> None:
            raise MeasurementAborted(str(before))

        with pytest.raises(MeasurementAborted, match="1"):
            time_slices.take_turn("a", give_up)
        time_slices.wait("b", give_up)
        assert not time_slices.slice_is_over("b"), "its turn has just begun"
    with time_slices.participate("c"):
        now[0] = 100.0
        assert not time_slices.slice_is_over("c"), "nobody waits"


def test_a_short_job_ends_while_a_long_one_goes_on(store: Store) -> None:
    long, stop = queued(store, seed=1, budget={"trials": 5000}), threading.Event()

    def run(s: Store, w: Any, t: Any, options: Any, *more: Any, control: Any, **steer: Any) -> Any:
        def before(trial: int) -> None:
            time.sleep(0.01)
            control.pause()

        trials = options.budget.trials if options.budget.trials < 10 else 1_000_000  # till it stops
        return fake_run(trials, before=before)(s, w, t, options, *more, **steer)

    context = JobContext(
        store, 5.0, stop, TimeSlices(turn_secs=0.05), run=run, publish=lambda *_: Published()
    )
    thread = threading.Thread(target=Worker(context, "test", poll_secs=0.01).work)
    thread.start()
    try:
        end = time.monotonic() + 60
        while not store.job_trials(long.id):
            assert time.monotonic() < end
            time.sleep(0.02)
        short = queued(store, seed=2, budget={"trials": 4})
        while not read(store, short).done:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert read(store, short).state is JobState.SUCCEEDED
        assert read(store, long).state is JobState.RUNNING
    finally:
        stop.set()
        thread.join(60)
    assert read(store, long).state is JobState.QUEUED, "given back when the worker stopped"


def test_a_job_that_waits_for_its_turn_can_be_cancelled(store: Store) -> None:
    job = queued(store)
    time_slices = TimeSlices()
    context = JobContext(
        store, 5.0, threading.Event(), time_slices, run=fake_run(), publish=lambda *_: Published()
    )
    with time_slices.participate("another"):
        thread = threading.Thread(target=Worker(context, "test").work_once)
        thread.start()
        end = time.monotonic() + 60
        while "1 other job" not in str(read(store, job).progress.get("waiting_for")):
            assert time.monotonic() < end
            time.sleep(0.02)
        store.request_cancel(job.id)
        thread.join(60)
        assert not thread.is_alive()
    assert read(store, job).state is JobState.CANCELLED


def test_courtesy_ends_when_nothing_waits_and_is_bounded() -> None:
    now, waiting, counts = [0.0], [2], [0]
    yield_policy = YieldPolicy(most_secs=60.0, clock=lambda: now[0])

    def due_at(secs: float) -> bool:
        now[0] = secs

        def count() -> int:
            counts[0] += 1
            return waiting[0]

        return yield_policy.is_due(count)

    assert due_at(0.0)
    assert due_at(0.1)
    assert counts == [1], "the database is not asked at each candidate"
    assert due_at(30.0)
    assert due_at(59.9)
    assert not due_at(61.0), "what nobody prepares holds up no job for ever"
    assert not due_at(100.0)
    waiting[0] = 0
    assert not due_at(110.0)
    waiting[0] = 1
    assert due_at(120.0), "a new one goes first again"
    assert due_at(500.0), "nobody looked for long: it may be another"

    def away() -> int:
        raise StoreError("away")

    assert not YieldPolicy().is_due(away)


def test_who_stands_aside_leaves_the_row_to_others() -> None:
    time_slices, looks, others = TimeSlices(), [0], [True, True, False]
    with time_slices.participate("ticket"), time_slices.participate("job"):

        def look() -> None:
            looks[0] += 1
            time_slices.wait("job", lambda before: pytest.fail("its turn is now"))

        time_slices.step_aside("ticket", lambda: others.pop(0), look)
        assert looks == [1]
        with pytest.raises(MeasurementAborted):
            time_slices.wait("ticket", aborted)


def aborted(before: int) -> None:
    raise MeasurementAborted(str(before))


def ticketed(store: Store, native: Target) -> StoredJob:
    """The job of a ticket whose preparation waits."""
    workload = workloads.workload_of(MATMUL)
    job = tickets_for(native, 3)(workload)
    demand = Demand(
        workload.key, workload.to_json(), workload.name, 1,
        native.key, native.to_json(), job,
    )  # fmt: skip
    name = toolchains.toolchain_name(toolchains.toolchain())
    store.demand([demand], name, most_waiting=9, most_jobs=9, owner=None, quota=None)
    (waiting,) = store.job_queue()
    found = store.get_job(waiting.id)
    assert found is not None
    return found


def test_preparations_go_before_the_jobs_of_tickets(store: Store) -> None:
    ticket = ticketed(store, native_target(probe=False))
    context = JobContext(
        store, 5.0, threading.Event(), run=fake_run(), publish=lambda *_: Published(),
        yield_policy=YieldPolicy(look_secs=0.0),
    )  # fmt: skip
    worker = Worker(context, "test")
    submitted = queued(store)
    assert worker.work_once(), "what somebody submitted waits for no preparation"
    assert read(store, submitted).done
    assert not worker.work_once()
    assert read(store, ticket).state is JobState.QUEUED
    prepare_all(store, Counted())
    assert worker.work_once()
    assert read(store, ticket).state is JobState.SUCCEEDED


def test_the_job_of_a_ticket_at_work_lets_a_preparation_go_first(store: Store) -> None:
    native = native_target(probe=False)
    ticket = ticketed(store, native)
    prepare_all(store, Counted())
    nine = workloads.workload_of("matmul:M=9,N=9,K=9")
    told: list[object] = []

    def run(*words: Any, control: Any, **steer: Any) -> Any:
        def before(trial: int) -> None:
            if trial != 2:
                assert not control.is_wanted()
                return
            name = toolchains.toolchain_name(toolchains.toolchain())
            demand = Demand(nine.key, nine.to_json(), "", 1, native.key, native.to_json())
            store.demand([demand], name, most_waiting=9, most_jobs=9, owner=None, quota=None)
            assert control.is_wanted()
            threading.Timer(0.3, lambda: prepare_all(store, Counted())).start()
            control.pause()
            told.append(store.preparations_waiting(name))

        return fake_run(3, before=before)(*words, **steer)

    context = JobContext(
        store, 5.0, threading.Event(), run=run, publish=lambda *_: Published(),
        yield_policy=YieldPolicy(look_secs=0.0),
    )  # fmt: skip
    assert Worker(context, "test").work_once()
    done = read(store, ticket)
    assert done.state is JobState.SUCCEEDED, done.error
    assert told == [0]
