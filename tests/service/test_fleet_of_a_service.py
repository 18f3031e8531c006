"""A service with a fleet: what it tells of it, and how many jobs it has open there."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.fleet.local_fleet import free_port
from tests.support.service.records import HOST, MATMUL, fake_run
from tilewright.db import Store
from tilewright.db.values.job_states import JobState
from tilewright.service import timeouts
from tilewright.service.answers.publish import Published
from tilewright.service.http.app import create_app
from tilewright.service.jobs import job_slots
from tilewright.service.jobs.job_slots import FleetSize
from tilewright.service.jobs.queue import position_of
from tilewright.service.jobs.request import read_job
from tilewright.service.jobs.run import JobContext
from tilewright.service.jobs.worker import Worker
from tilewright.service.settings import Settings
from tilewright.tuner.measure.fleet import machines
from tilewright.tuner.measure.fleet.address import FleetError


def queued(store: Store, seed: int, measurer: str) -> str:
    request = read_job({"workload": MATMUL, "target": HOST.to_json(), "seed": seed}, Settings())
    form = request.to_json() | {"measurer": measurer}
    job, _ = store.create_job(form, body_hash=f"{seed}", flight_key=f"{seed}")
    return job.id


def test_a_fleet_has_as_many_jobs_as_machines_beside_those_of_this_machine(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, go_on = threading.Event(), threading.Event()

    def run(*given: Any, **steer: Any) -> Any:
        assert go_on.wait(120)
        return fake_run()(*given, **steer)

    monkeypatch.setattr(machines, "fleet_status", lambda *_: [None] * 5)
    context = JobContext(
        store, 60.0, stop, run=run, publish=lambda *_: Published(), fleet="tcp://127.0.0.1:1"
    )
    of_fleet = [queued(store, seed, "dask") for seed in range(7)]
    here = [queued(store, seed, "simulated:x") for seed in range(7, 10)]
    worker = Worker(context, "test", poll_secs=0.01, jobs_at_once=2)
    thread = threading.Thread(target=worker.work)
    thread.start()
    try:
        end = time.monotonic() + 60
        while store.job_counts()[JobState.RUNNING] < 7:
            assert time.monotonic() < end
            time.sleep(0.01)
        left = [job.id for job in store.job_queue()]
        assert len(set(left) & set(of_fleet)) == 2
        (waits,) = set(left) & set(here)
        told = position_of(store.job_queue(), waits)
        assert told is not None
        assert told[0] == 1, "not behind jobs of the fleet"
    finally:
        stop.set()
        go_on.set()
        thread.join(60)


def test_a_fleet_that_does_not_answer_is_as_large_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeouts, "FLEET_SIZE_CACHE_SECS", 0.0)
    size = FleetSize("tcp://127.0.0.1:1", at_least=3)
    for count, expected in ((1, 3), (8, 8), (500, job_slots.MOST_ON_A_FLEET)):
        monkeypatch.setattr(machines, "fleet_status", lambda *_, n=count: [None] * n)
        assert size() == expected

    def gone(*_: object) -> None:
        raise FleetError("gone")

    monkeypatch.setattr(machines, "fleet_status", gone)
    assert size() == job_slots.MOST_ON_A_FLEET
    assert FleetSize("", at_least=3)() == 3


def test_a_service_without_a_fleet_says_so(api: TestClient) -> None:
    assert api.get("/v1/fleet").json() == {"fleet": False, "machines": []}


def test_a_fleet_that_does_not_answer_is_told_as_such(store: Store) -> None:
    pytest.importorskip("distributed")
    settings = Settings(fleet=f"tcp://127.0.0.1:{free_port()}", preparers=0)
    with TestClient(create_app(settings, store)) as api:
        answer = api.get("/v1/fleet")
    assert answer.status_code == 503
    assert answer.json()["code"] == "fleet_unavailable"
