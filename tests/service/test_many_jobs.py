"""Jobs of many workloads: submitted, run, watched, cancelled, refused."""

from __future__ import annotations

import csv
import io
import json
import threading
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient

from tests.support.paths import ROOT
from tests.support.service.records import HOST, MATMUL
from tilewright.db import Store
from tilewright.service.answers.publish import Published
from tilewright.service.client.core import ClientCore, resume
from tilewright.service.client.messages import Request
from tilewright.service.http.app import create_app
from tilewright.service.jobs.request import read_job, stored_job
from tilewright.service.jobs.run import JobContext
from tilewright.service.jobs.worker import Worker
from tilewright.service.settings import Settings

OTHER = "matmul:M=16,N=16,K=8"
FOLDER = ROOT / "examples"
SETTINGS = Settings(measurer_folder=FOLDER)
BODY: dict[str, Any] = {
    "workloads": [{"workload": MATMUL, "weight": 3, "name": "fc"}, OTHER, MATMUL],
    "target": HOST.to_json(),
    "measurer": "simulated:machine.json",
    "budget": {"trials": 5},
}


@pytest.fixture
def api(store: Store) -> TestClient:
    return TestClient(create_app(SETTINGS, store), base_url="http://127.0.0.1")


def submit(api: TestClient, **fields: Any) -> dict[str, Any]:
    answer = api.post("/v1/jobs", json={**BODY, **fields})
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    return document


def work(store: Store, stop: threading.Event | None = None) -> None:
    context = JobContext(
        store, 60.0, stop or threading.Event(), publish=lambda *_: Published({"object": {}})
    )
    assert Worker(context, "test").work_once()


def test_a_request_survives_being_stored() -> None:
    request = read_job(BODY, SETTINGS)
    again = stored_job(json.loads(json.dumps(request.to_json())))
    assert [(e.workload.key, e.weight, e.name) for e in again.entries] == [
        (e.workload.key, e.weight, e.name) for e in request.entries
    ]
    assert again.options == request.options
    assert again.flight_key == request.flight_key
    fewer = read_job({**BODY, "workloads": BODY["workloads"][:2]}, SETTINGS)
    assert fewer.flight_key != request.flight_key


def test_a_job_of_many_runs_and_each_workload_is_answered(api: TestClient, store: Store) -> None:
    job = submit(api)
    assert job["workload"]["name"] == f"2 workloads: fc, {OTHER}"
    assert job["request"]["budget"]["trials"] == 10
    assert submit(api)["id"] == job["id"], "an equal open job is joined"
    work(store)
    done = api.get(f"/v1/jobs/{job['id']}").json()
    assert done["state"] == "SUCCEEDED", done["error"]
    tasks = done["result"]["tasks"]
    assert [(t["name"], t["weight"]) for t in tasks] == [("fc", 4.0), (OTHER, 1.0)]
    assert all(t["artefacts"] == {"object": {}} for t in tasks)
    total = done["result"]["weighted_secs"]
    assert total == pytest.approx(sum(t["weight"] * t["best"]["run_secs"] for t in tasks))
    progress = done["progress"]
    assert [t["state"] for t in progress["tasks"]] == ["done", "done"]
    assert progress["trials_done"] == sum(t["trials"] for t in progress["tasks"])
    for task in tasks:
        path = f"/v1/best/{task['workload_key']}/{HOST.key}"
        assert api.get(path).json()["run_secs"] == task["best"]["run_secs"]
    told = [e.data for e in store.events_after(job["id"]) if e.kind == "trial"]
    assert {event["task"] for event in told} == {"fc", OTHER}
    assert [event["trial"] for event in told] == list(range(1, 11))
    assert all(1 <= event["task_trial"] <= 5 for event in told)
    ended = [e.data for e in store.events_after(job["id"]) if e.kind == "task"]
    assert [(e["name"], e["state"]) for e in ended if e["name"] == "fc"] == [
        ("fc", "tuning"),
        ("fc", "done"),
    ]


def trials_of(api: TestClient, job_id: str, **params: Any) -> list[dict[str, Any]]:
    answer = api.get(f"/v1/jobs/{job_id}/trials", params={"page_size": 100, **params})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["trials"]
    return found


def test_trials_are_listed_for_all_workloads_and_for_each(api: TestClient, store: Store) -> None:
    job = submit(api)
    tasks = job["request"]["tasks"]
    assert [(task["name"], task["weight"]) for task in tasks] == [("fc", 4.0), (OTHER, 1.0)]
    work(store)
    listed = trials_of(api, job["id"])
    assert [trial["trial"] for trial in listed] == list(range(1, 11))
    for task in tasks:
        own = trials_of(api, job["id"], task=task["name"])
        assert own == [trial for trial in listed if trial["task"] == task["name"]]
        assert len(own) == 5
    first = trials_of(api, job["id"], task="fc", page_size=2)
    assert first == trials_of(api, job["id"], task="fc")[:2]
    for path in ("trials", "events"):
        answer = api.get(f"/v1/jobs/{job['id']}/{path}", params={"task": "nobody"})
        assert answer.status_code == 404
        assert "no task 'nobody'" in answer.json()["detail"]


def test_one_workload_is_watched_on_its_own(api: TestClient, store: Store) -> None:
    job = submit(api)
    work(store)
    told = api.get(f"/v1/jobs/{job['id']}/events", params={"task": "fc"}).text
    events = [
        (kind.removeprefix("event: "), json.loads(data.removeprefix("data: ")))
        for kind, data in (frame.splitlines()[-2:] for frame in told.split("\n\n")[1:-1])
    ]
    assert {data["task"] for kind, data in events if kind == "trial"} == {"fc"}
    assert {data["name"] for kind, data in events if kind == "task"} == {"fc"}
    assert len([kind for kind, _ in events if kind == "trial"]) == 5
    assert events[-1][0] == "done"
    assert "state" in {kind for kind, _ in events}, "events of the whole job are sent"


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the worker runs after it."""


def test_a_killed_worker_loses_no_trial_and_numbers_stay(
    api: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(api)
    add, added = store.add, 0

    def add_until_killed(records: Any) -> None:
        nonlocal added
        add(records)
        added += len(records)
        if added >= 7:
            raise Killed

    monkeypatch.setattr(store, "add", add_until_killed)
    with pytest.raises(Killed):
        work(store)
    monkeypatch.setattr(store, "add", add)
    before = {trial["record_key"]: trial["trial"] for trial in trials_of(api, job["id"])}
    store.coordinate()  # the next coordinator takes the jobs of the dead one
    work(store)
    done = api.get(f"/v1/jobs/{job['id']}").json()
    assert done["state"] == "SUCCEEDED", done["error"]
    assert done["progress"]["reused"] >= 6
    after = {trial["record_key"]: trial["trial"] for trial in trials_of(api, job["id"])}
    assert sorted(after.values()) == list(range(1, 11))
    assert before.items() <= after.items()
    assert not list(store.check())


def test_a_stopped_worker_gives_the_job_back_and_the_next_goes_on(
    api: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(api)
    stop = threading.Event()
    add = store.add

    def add_and_stop(records: Any) -> None:
        add(records)
        stop.set()

    monkeypatch.setattr(store, "add", add_and_stop)
    work(store, stop)
    assert api.get(f"/v1/jobs/{job['id']}").json()["state"] == "QUEUED"
    monkeypatch.setattr(store, "add", add)
    work(store)
    done = api.get(f"/v1/jobs/{job['id']}").json()
    assert done["state"] == "SUCCEEDED"
    assert done["progress"]["reused"] > 0


def test_pages_show_a_job_of_many(api: TestClient, store: Store) -> None:
    job = submit(api)
    for _ in range(2):
        assert "2 workloads: fc" in api.get("/").text
        page = api.get(f"/jobs/{job['id']}")
        assert page.status_code == 200
        assert "2 workloads: fc" in page.text
        part = api.get(f"/jobs/{job['id']}/facts").text
        if job["state"] == "QUEUED":
            assert "Left to gain" not in part
            work(store)
            job = api.get(f"/v1/jobs/{job['id']}").json()
    for text in (page.text, part):
        assert ">fc</a>" in text
        assert f">{OTHER}</a>" in text
        assert "Left to gain" in text
    assert "every task has ended" in page.text
    assert "drawings" not in page.text
    assert "Fastest trials" not in page.text, "times of different workloads are not compared"
    rows = api.get(f"/jobs/{job['id']}/trials").text
    assert rows.count(f"?task={quote(OTHER)}") == 5
    assert "Workload" in rows
    own = api.get(f"/jobs/{job['id']}/trials", params={"task": "fc"}).text
    assert "5 trials of fc" in own
    assert api.get(f"/jobs/{job['id']}/trials?task=nobody").status_code == 404
    table = list(csv.DictReader(io.StringIO(api.get(f"/jobs/{job['id']}/trials.csv").text)))
    assert {row["task"] for row in table} == {"fc", OTHER}
    assert len(table) == 10
    assert "Not enough data" in api.get(f"/jobs/{job['id']}/importance").text


def test_a_check_creates_nothing(api: TestClient) -> None:
    answer = api.post("/v1/jobs?validate_only=true", json=BODY)
    assert answer.status_code == 200
    assert answer.json()["id"] is None
    assert api.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize(
    ("fields", "pointer", "says"),
    [
        ({"workloads": []}, "/workloads", "1 to 200"),
        ({"workloads": [MATMUL] * 201}, "/workloads", "1 to 200"),
        ({"workloads": [MATMUL] * 2000}, "/workloads", "1 to 200"),
        ({"workloads": [{"workload": MATMUL, "weight": -1}]}, "/workloads/0/weight", "above 0"),
        ({"workloads": [MATMUL, "nope:M=1"]}, "/workloads/1", "entry 2: unknown operator"),
        ({"workloads": [{"workload": MATMUL, "weight": 0}]}, "/workloads/0/weight", "above 0"),
        ({"workloads": [{"workload": MATMUL, "weight": True}]}, "/workloads/0/weight", "above 0"),
        ({"workloads": [{"weight": 1}]}, "/workloads/0", "workload is missing"),
        ({"workloads": [7]}, "/workloads/0", "must be"),
        ({"workload": MATMUL}, "/workloads", "not both"),
        ({"workloads": None}, "/workload", "required"),
    ],
)
def test_a_bad_list_is_refused_with_a_pointer(
    fields: dict[str, Any], pointer: str, says: str, api: TestClient
) -> None:
    answer = api.post("/v1/jobs", json={**BODY, **fields})
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["errors"][0]["pointer"].startswith(pointer)
    assert says in problem["detail"]


def test_the_client_submits_a_list() -> None:
    core = ClientCore("http://service", timeout_secs=30.0, retries=1)
    request = resume(core.submit(BODY["workloads"], trials=5))
    assert isinstance(request, Request)
    assert request.path == "/v1/jobs"
    assert request.body == {
        "workloads": BODY["workloads"],
        "target": "native",
        "budget": {"trials": 5},
    }
