"""Several jobs: who is next, whose turn it is, and that short ones do not wait for long ones."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from db import Store
from db.job_rows import WaitingJob
from db.job_states import JobState
from service.answers.publish import Published
from service.jobs.queue import SHORT_TRIALS, choose, order, place
from service.jobs.run import Means
from service.jobs.turns import Turns
from service.jobs.worker import Worker
from tests.service.service_cases import HOST, MATMUL, fake_run
from tests.service.test_worker import queued, read
from tuner.measure.control import MeasurementAborted

LONG, MIDDLE, SHORT = WaitingJob("1", 5000), WaitingJob("2", 500), WaitingJob("3", 4)


def chosen(waiting: list[WaitingJob], open_jobs: int, *, has_oldest: bool = True) -> str | None:
    job = choose(waiting, places=3, open_jobs=open_jobs, has_oldest=has_oldest)
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
    assert choose([MIDDLE], places=1, open_jobs=0, has_oldest=False) is MIDDLE


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
    assert "2 jobs are taken before" in told["reason"]
    assert place(store.job_queue(), "unknown") is None
    api.post(f"/v1/jobs/{first['id']}:cancel")
    assert api.get(f"/v1/jobs/{first['id']}").json()["queue"] is None


def test_turns_go_round_when_they_are_over() -> None:
    now = [0.0]
    turns = Turns(turn_secs=2.0, clock=lambda: now[0])
    with turns.among("a"), turns.among("b"):
        assert not turns.is_over("a"), "its time is not up"
        now[0] = 2.5
        assert turns.is_over("a")
        assert not turns.is_over("b"), "it is not its turn"

        def give_up(before: int) -> None:
            raise MeasurementAborted(str(before))

        with pytest.raises(MeasurementAborted, match="1"):
            turns.next("a", give_up)
        turns.wait("b", give_up)
        assert not turns.is_over("b"), "its turn has just begun"
    with turns.among("c"):
        now[0] = 100.0
        assert not turns.is_over("c"), "nobody waits"


def test_a_short_job_ends_while_a_long_one_goes_on(store: Store) -> None:
    long, stop = queued(store, seed=1, budget={"trials": 5000}), threading.Event()
    begun = threading.Event()

    def run(s: Store, w: Any, t: Any, options: Any, *more: Any, control: Any, **steer: Any) -> Any:
        def before(trial: int) -> None:
            begun.set()
            time.sleep(0.01)
            control.pause()

        trials = options.trials if options.trials < 10 else 1000
        return fake_run(trials, before=before)(s, w, t, options, *more, **steer)

    means = Means(store, 5.0, stop, Turns(turn_secs=0.05), run=run, publish=lambda *_: Published())
    thread = threading.Thread(target=Worker(means, "test", poll_secs=0.01).work)
    thread.start()
    try:
        assert begun.wait(10)
        short = queued(store, seed=2, budget={"trials": 4})
        end = time.monotonic() + 30
        while not read(store, short).done:
            assert time.monotonic() < end
            time.sleep(0.02)
        assert read(store, short).state is JobState.SUCCEEDED
        assert read(store, long).state is JobState.RUNNING
        assert 0 < len(store.job_trials(long.id)) < 1000
    finally:
        stop.set()
        thread.join(30)
    assert read(store, long).state is JobState.QUEUED, "given back when the worker stopped"


def test_a_job_that_waits_for_its_turn_can_be_cancelled(store: Store) -> None:
    job = queued(store)
    turns = Turns()
    means = Means(
        store, 5.0, threading.Event(), turns, run=fake_run(), publish=lambda *_: Published()
    )
    with turns.among("another"):
        thread = threading.Thread(target=Worker(means, "test").work_once)
        thread.start()
        end = time.monotonic() + 30
        while "1 other job" not in str(read(store, job).progress.get("waiting_for")):
            assert time.monotonic() < end
            time.sleep(0.02)
        store.request_cancel(job.id)
        thread.join(10)
        assert not thread.is_alive()
    assert read(store, job).state is JobState.CANCELLED
