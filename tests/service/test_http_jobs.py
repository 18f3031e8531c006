"""Jobs over HTTP: submitted once, read, waited for, followed, cancelled."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service.jobs import queued
from tests.support.service.records import HOST, MATMUL, fake_run
from tests.support.service.streams import once_told
from tilewright.db import Store
from tilewright.db.values.job_states import JobState
from tilewright.service.answers.publish import Published
from tilewright.service.http.app import create_app
from tilewright.service.jobs.run import JobContext
from tilewright.service.jobs.worker import Worker
from tilewright.service.limits import RequestLimits
from tilewright.service.settings import Settings

TARGET = HOST.to_json()


def submit(api: TestClient, **fields: Any) -> dict[str, Any]:
    answer = api.post("/v1/jobs", json={"workload": MATMUL, "target": TARGET, **fields})
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    return document


def work(store: Store, **more: Any) -> None:
    """Run the oldest waiting job with a stand-in for the machine."""
    context = JobContext(
        store, 5.0, threading.Event(), run=fake_run(**more), publish=lambda *_: Published()
    )
    assert Worker(context, "test").work_once()


def test_submitting_gives_a_job_and_where_it_is(api: TestClient) -> None:
    answer = api.post("/v1/jobs", json={"workload": MATMUL, "target": TARGET})
    job = answer.json()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
    assert job["state"] == "QUEUED"
    assert not job["done"]
    assert job["workload"]["name"] == MATMUL
    assert job["workload"]["flops"] == 2 * 8**3
    assert job["target"]["key"] == HOST.key
    assert job["request"] == {
        "threads": 1,
        "budget": {"trials": 64, "seconds": None},
        "strategy": "annealing",
        "seed": 0,
        "measurer": "local",
    }
    assert api.get(f"/v1/jobs/{job['id']}").json() == job


@pytest.mark.parametrize(
    "spelled",
    [
        MATMUL,
        "MATMUL:m=8,n=8,k=8",
        {
            "expr": "C[i,j] += A[i,k] * B[k,j]",
            "tensors": {"A": "f32[8,8]", "B": "f32[8,8]"},
            "ranges": {"k": 8},
        },
        {"expr": "C[x,y] += A[x,z] * B[z,y]", "tensors": ["A=f32[8,8]", "B=f32[8,8]"]},
    ],
)
def test_the_same_work_in_flight_is_the_same_job_however_spelled(
    api: TestClient, spelled: str | dict[str, Any]
) -> None:
    assert submit(api)["id"] == submit(api, workload=spelled)["id"]


@pytest.mark.parametrize("other", [{"seed": 1}, {"strategy": "grid"}, {"budget": {"trials": 9}}])
def test_other_options_are_another_job(api: TestClient, other: dict[str, Any]) -> None:
    assert submit(api)["id"] != submit(api, **other)["id"]


def test_a_canonical_document_is_the_same_workload(api: TestClient, store: Store) -> None:
    job = submit(api)
    stored = store.get_job(job["id"])
    assert stored is not None
    assert submit(api, workload=stored.request["workload"])["id"] == job["id"]


def test_an_idempotency_key_gives_the_same_job_even_when_it_is_done(
    api: TestClient, store: Store
) -> None:
    body = {"workload": MATMUL, "target": TARGET}
    headers = {"Idempotency-Key": "one"}
    first = api.post("/v1/jobs", json=body, headers=headers).json()
    store.request_cancel(first["id"])
    spaced = json.dumps(body, indent=3)  # the same JSON, other bytes
    headers["Content-Type"] = "application/json"
    again = api.post("/v1/jobs", content=spaced, headers=headers).json()
    assert again["id"] == first["id"]
    assert again["state"] == "CANCELLED"


def test_an_idempotency_key_with_another_body_is_refused(api: TestClient) -> None:
    headers = {"Idempotency-Key": "one"}
    api.post("/v1/jobs", json={"workload": MATMUL, "target": TARGET}, headers=headers)
    answer = api.post(
        "/v1/jobs", json={"workload": MATMUL, "target": TARGET, "seed": 3}, headers=headers
    )
    assert answer.status_code == 422
    assert answer.json()["code"] == "idempotency_key_reused"


def test_validate_only_queues_nothing(api: TestClient, store: Store) -> None:
    answer = api.post(
        "/v1/jobs", params={"validate_only": "true"}, json={"workload": MATMUL, "target": TARGET}
    )
    assert answer.status_code == 200
    assert answer.json()["id"] is None
    assert answer.json()["workload"]["flops"] == 1024
    assert store.list_jobs().items == ()


def test_a_finished_job_tells_its_best_and_its_whole_report(api: TestClient, store: Store) -> None:
    job = submit(api)
    work(store)
    done = api.get(f"/v1/jobs/{job['id']}").json()
    assert done["state"] == "SUCCEEDED"
    assert done["done"]
    assert done["best"]["verified"]
    assert done["result"]["trials"]["total"] == 3
    assert done["progress"]["trials_done"] == 3


def test_a_job_without_a_passing_candidate_failed_and_says_why(
    api: TestClient, store: Store
) -> None:
    job = submit(api)
    work(store, best=False)
    done = api.get(f"/v1/jobs/{job['id']}").json()
    assert done["state"] == "FAILED"
    assert done["error"]["code"] == "no_candidate_passed"
    assert done["best"] is None


def test_waiting_ends_when_the_job_does(api: TestClient, store: Store) -> None:
    job = submit(api)
    cancel = threading.Timer(0.1, lambda: store.request_cancel(job["id"]))
    cancel.start()
    answer = api.get(f"/v1/jobs/{job['id']}", params={"wait": "20s"})
    cancel.join()
    assert answer.json()["done"]


def test_waiting_ends_when_its_time_is_up(api: TestClient) -> None:
    job = submit(api)
    assert not api.get(f"/v1/jobs/{job['id']}", params={"wait": "30ms"}).json()["done"]


@pytest.mark.parametrize("wait", ["soon", "-1s", "1h", "1e9", "１s"])
def test_a_wait_that_is_no_time_is_refused(api: TestClient, wait: str) -> None:
    answer = api.get(f"/v1/jobs/{submit(api)['id']}", params={"wait": wait})
    assert answer.status_code == 422
    assert answer.json()["code"] == "bad_wait"


def test_cancelling_twice_is_cancelling_once(api: TestClient) -> None:
    job = submit(api)
    for _ in range(2):
        answer = api.post(f"/v1/jobs/{job['id']}:cancel")
        assert answer.status_code == 200
        assert answer.json()["state"] == "CANCELLED"


def test_jobs_are_listed_newest_first_in_pages(api: TestClient) -> None:
    ids = [submit(api, seed=seed)["id"] for seed in range(5)]
    seen: list[str] = []
    token = None
    while True:
        params = {"page_size": 2, **({"page_token": token} if token else {})}
        page = api.get("/v1/jobs", params=params).json()
        seen += [job["id"] for job in page["jobs"]]
        token = page["next_page_token"]
        if token is None:
            break
    assert sorted(seen) == sorted(ids)
    assert seen == sorted(seen, reverse=True)


def test_jobs_are_listed_by_state(api: TestClient) -> None:
    job = submit(api)
    submit(api, seed=1)
    api.post(f"/v1/jobs/{job['id']}:cancel")
    page = api.get("/v1/jobs", params={"state": "CANCELLED"}).json()
    assert [j["id"] for j in page["jobs"]] == [job["id"]]


def test_trials_are_listed_in_order_in_pages(api: TestClient, store: Store) -> None:
    job = submit(api)
    work(store, trials=5)
    trials: list[dict[str, Any]] = []
    token = None
    while True:
        params = {"page_size": 2, **({"page_token": token} if token else {})}
        page = api.get(f"/v1/jobs/{job['id']}/trials", params=params).json()
        trials += page["trials"]
        token = page["next_page_token"]
        if token is None:
            break
    assert [t["trial"] for t in trials] == [1, 2, 3, 4, 5]
    assert all(t["status"] == "ok" and len(t["samples_secs"]) == 2 for t in trials)


def events_of(api: TestClient, job_id: str, after: str = "") -> list[tuple[str, str, Any]]:
    """(kind, id, data) of every event up to `done`."""
    headers = {"Last-Event-ID": after} if after else {}
    text = api.get(f"/v1/jobs/{job_id}/events", headers=headers).text
    found = []
    for block in text.split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
        if "event" in lines:
            found.append((lines["event"], lines.get("id", ""), json.loads(lines["data"])))
    return found


def test_events_tell_the_whole_story_and_end_with_the_job(api: TestClient, store: Store) -> None:
    job = submit(api)
    work(store)
    events = events_of(api, job["id"])
    assert [kind for kind, _, _ in events] == [
        "state", "state", "trial", "trial", "trial", "activity", "state", "done",
    ]  # fmt: skip
    assert events[2][2]["trial"] == 1
    assert events[-1][2]["state"] == "SUCCEEDED"


def test_events_resume_after_the_last_one_seen(api: TestClient, store: Store) -> None:
    job = submit(api)
    work(store)
    events = events_of(api, job["id"])
    for position in range(len(events) - 1):
        assert events_of(api, job["id"], events[position][1]) == events[position + 1 :]


def test_a_stream_of_a_waiting_job_keeps_beating(settings: Settings, store: Store) -> None:
    job = queued(store)
    app = create_app(settings, store)
    cancelling = once_told(app, b": still here\n\n", lambda: store.request_cancel(job.id))
    with TestClient(cancelling) as api:
        text = api.get(f"/v1/jobs/{job.id}/events").text
    assert ": still here\n\n" in text
    assert text.rstrip().splitlines()[-2] == "event: done"


@pytest.mark.parametrize("after", ["x", "-1", "9" * 30])
def test_an_event_id_that_is_none_is_refused(api: TestClient, after: str) -> None:
    answer = api.get(f"/v1/jobs/{submit(api)['id']}/events", headers={"Last-Event-ID": after})
    assert answer.status_code == 422
    assert answer.json()["code"] == "bad_event_id"


def test_too_many_streams_and_jobs_are_sent_away_with_a_time_to_come_back(store: Store) -> None:
    settings = Settings(limits=RequestLimits(open_jobs=1, event_streams=0))
    with TestClient(create_app(settings, store)) as api:
        job = submit(api)
        for answer in (
            api.post("/v1/jobs", json={"workload": MATMUL, "target": TARGET, "seed": 1}),
            api.get(f"/v1/jobs/{job['id']}/events"),
        ):
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) > 0


def test_files_of_timings_are_read_only_below_their_folder(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "timings"
    folder.mkdir()
    (folder / "fast.json").write_text("{}")
    (tmp_path / "secret.json").write_text("{}")
    (folder / "link.json").symlink_to(tmp_path / "secret.json")
    with TestClient(create_app(Settings(measurer_folder=folder), store)) as api:
        job = submit(api, measurer="simulated:fast.json")
        assert job["request"]["measurer"] == "simulated:fast.json", "not where the service has it"
        stored = store.get_job(job["id"])
        assert stored is not None
        assert stored.request["measurer"] == f"simulated:{folder}/fast.json"
        for path in (f"/v1/jobs/{job['id']}", "/v1/jobs", f"/jobs/{job['id']}", "/jobs/list"):
            assert str(folder) not in api.get(path).text
        secret, long = str(tmp_path / "secret.json"), "a" * 300
        for name in ("../secret.json", secret, "link.json", "none", ".", "", long, "a/" * 200):
            answer = api.post(
                "/v1/jobs",
                json={"workload": MATMUL, "target": TARGET, "measurer": f"replay:{name}"},
            )
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["pointer"] == "/measurer"


def test_a_bad_file_of_timings_is_told_before_anything_is_queued(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "odd.json").write_text('{"luck": 1}')
    with TestClient(create_app(Settings(measurer_folder=tmp_path), store)) as api:
        for spec, says in (("simulated:odd.json", "luck"), ("replay:odd.json", "odd.json")):
            answer = api.post(
                "/v1/jobs?validate_only=true",
                json={"workload": MATMUL, "target": TARGET, "measurer": spec},
            )
            assert answer.status_code == 422
            assert answer.json()["code"] == "bad_measurer"
            assert answer.json()["errors"][0]["pointer"] == "/measurer"
            assert says in answer.json()["detail"]


@pytest.mark.parametrize("measurer", ["simulated:x.json", "magic", "replay:", "local:x"])
def test_without_a_folder_no_file_of_timings_is_read(api: TestClient, measurer: str) -> None:
    answer = api.post("/v1/jobs", json={"workload": MATMUL, "measurer": measurer, "target": TARGET})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/measurer"


def test_unfinished_jobs_are_counted_by_state(api: TestClient, store: Store) -> None:
    submit(api)
    assert 'tilewright_open_jobs{state="QUEUED"} 1.0' in api.get("/metrics").text
    store.request_cancel(store.list_jobs(state=JobState.QUEUED).items[0].id)
    assert 'tilewright_open_jobs{state="QUEUED"} 0.0' in api.get("/metrics").text
