"""What failed its full check is handed out by no command and no route, and everything says why."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service.records import HOST, MATMUL, keep_best, make_record
from tilewright.db import Store
from tilewright.schedules.record import MeasureStatus
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers.publish import Published
from tilewright.service.cli import run
from tilewright.service.jobs import tuning
from tilewright.service.jobs.request import read_job
from tilewright.service.jobs.run import JobContext
from tilewright.service.jobs.worker import Worker
from tilewright.service.resolve import workloads
from tilewright.service.settings import Settings
from tilewright.tuner.machine.native_target import native_target
from tilewright.tuner.search.default import default_trace

Command = Callable[..., Any]

REASON = "wrong_result: why"
LEAST = ("--min-grade", "default")


@pytest.fixture
def native() -> Target:
    return native_target(probe=False)


@pytest.fixture
def default(workload: Workload, native: Target) -> list[Any]:
    """The schedule chosen without measuring."""
    return default_trace(workload, native).to_json()


@pytest.fixture
def command(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str],
            monkeypatch: pytest.MonkeyPatch) -> Command:  # fmt: skip
    """Runs a command on the test's database in an empty folder; its document."""
    monkeypatch.chdir(tmp_path)

    def execute(*words: str, code: int = 0) -> Any:
        assert run([*words, "--json", "--db", str(store.path)]) == code, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    return execute


def found_wrong(store: Store, workload: Workload, target: Target, *traces: list[Any]) -> None:
    """Store that these schedules failed the full check."""
    tuning.register(store, workload, target)
    wrong = MeasureStatus.WRONG_RESULT
    store.add([
        make_record(workload, target, status=wrong, trace=trace, trial=n)
        for n, trace in enumerate(traces, start=1)
    ])  # fmt: skip


def test_the_default_that_is_recorded_as_wrong_gives_way_to_the_next(
    command: Command,
    store: Store,
    api: TestClient,
    workload: Workload,
    native: Target,
    default: list[Any],
) -> None:
    assert command("best", MATMUL, *LEAST)["trace"] == default
    found_wrong(store, workload, native, default)
    doors = [
        command("best", MATMUL, *LEAST),
        command("show", MATMUL),
        command("emit", MATMUL, "-o", "out", *LEAST),
    ]
    for told in doors:
        assert told["trace"] == []
        assert f"failed its full check ({REASON})" in told["note"]
    (locked,) = command("lock", f"k={MATMUL}", *LEAST)["kernels"]
    built = api.post("/v1/builds", json={"name": "k", "workload": MATMUL, "min_grade": "default"})
    assert locked["trace"] == built.json()["kernel"]["trace"] == []
    every_cpu = api.post(
        "/v1/builds",
        json={"name": "k", "workload": MATMUL, "every_cpu": True, "targets": ["native"]},
    )
    assert every_cpu.json()["kernel"]["variants"][0]["trace"] == []


def test_where_all_that_is_known_is_wrong_nothing_is_handed_out(
    command: Command,
    store: Store,
    api: TestClient,
    workload: Workload,
    native: Target,
    default: list[Any],
) -> None:
    found_wrong(store, workload, native, default, [])
    for words in (
        ("best", MATMUL, *LEAST),
        ("show", MATMUL),
        ("emit", MATMUL, "-o", "out", *LEAST),
        ("emit", MATMUL, "-o", "out", "--cpu", "native"),
        ("lock", f"k={MATMUL}", *LEAST),
    ):
        error = command(*words, code=3)["error"]
        assert error["code"] == "no_schedule_passed"
        assert error["message"].count(REASON) == 2
    assert not Path("out").exists()
    answer = api.post("/v1/builds", json={"name": "k", "workload": MATMUL, "min_grade": "default"})
    assert (answer.status_code, answer.json()["code"]) == (404, "no_schedule_passed")
    told = f"tuned, but every candidate failed the full check: {REASON}"
    for words in (("best", MATMUL), ("emit", MATMUL, "-o", "out"), ("lock", f"k={MATMUL}")):
        assert told in command(*words, code=3)["error"]["message"]
    assert told in api.get(f"/v1/best/{workload.key}/{native.key}").json()["detail"]
    body = {"workloads": [MATMUL], "target": native.to_json()}
    (item,) = api.post("/v1/best:lookup", json=body).json()["items"]
    assert told in item["problem"]["detail"]


def test_a_best_elsewhere_that_is_wrong_here_is_no_compatible_answer(
    command: Command, store: Store, workload: Workload, native: Target, default: list[Any]
) -> None:
    keep_best(store, workload, native.with_threads(2), trace=default)
    least = ("--min-grade", "same-cpu")
    assert command("best", MATMUL, *least)["trace"] == default
    found_wrong(store, workload, native, default)
    assert REASON in command("best", MATMUL, *least, code=3)["error"]["message"]


def test_a_pin_that_was_found_wrong_since_is_not_fetched(
    command: Command,
    store: Store,
    api: TestClient,
    workload: Workload,
    native: Target,
    default: list[Any],
) -> None:
    """Nor made again, nor bundled; the service says so too."""
    keep_best(store, workload, native, trace=default)
    other = workloads.workload_of("matmul:M=8,N=16,K=8")
    command("lock", f"measured={MATMUL}", "chosen=matmul:M=8,N=16,K=8", *LEAST)
    command("fetch", "-o", "out")
    lock = json.loads(Path("tilewright.lock.json").read_text())
    chosen, measured = lock["kernels"]
    found_wrong(store, workload, native, default)
    found_wrong(store, other, native, chosen["trace"])
    for words in (
        ("fetch", "-o", "again"),
        ("export", "all.zip", "--bundle", "tilewright.lock.json"),
    ):
        error = command(*words, code=6)["error"]
        assert error["code"] == "verification_failed"
        for kernel in (chosen, measured):
            said = f"{kernel['name']} is pinned to a schedule that failed its full check ({REASON})"
            assert said in error["message"]
    assert not Path("again").exists()
    assert {c["change"] for c in command("lock", "--check", code=3)["changes"]} == {"stale"}
    moved = command("lock", f"measured={MATMUL}", *LEAST)["changes"]
    assert [change["change"] for change in moved] == ["moved"], "without --upgrade"
    answer = api.post("/v1/builds:check", json={"kernels": lock["kernels"]})
    assert [pin["name"] for pin in answer.json()["refused"]] == ["chosen", "measured"]
    asked = {"name": "measured", "workload": MATMUL, "targets": ["native"]}
    again = api.post("/v1/builds", json={**asked, "records": [measured["record_key"]]})
    assert (again.status_code, again.json()["code"]) == (409, "verification_failed")
    traced = {**asked, "records": [None], "traces": [default]}
    assert api.post("/v1/builds", json=traced).status_code == 409


def test_a_record_that_was_found_wrong_is_shown_as_that(
    command: Command, store: Store, workload: Workload, native: Target, default: list[Any]
) -> None:
    record = keep_best(store, workload, native, trace=default)
    found_wrong(store, workload, native, default)
    told = command("show", MATMUL, "--record", record.key)
    assert f"failed its full check ({REASON})" in told["note"]


def test_a_run_without_a_best_says_what_each_check_found(
    command: Command,
    tmp_path: Path,
    store: Store,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All trials are ok and every full check fails."""
    machine = tmp_path / "machine.json"
    machine.write_text(json.dumps({"confirm_failure_rate": 1.0}))
    words = ["tune", MATMUL, "--trials", "4", "--measurer", f"simulated:{machine}"]
    report = command(*words, code=1)
    assert (report["trials"]["ok"], report["best"]) == (4, None)
    why = "wrong_result: simulated: full check failed"
    assert {(r["status"], r["detail"]) for r in report["rejected"]} == {tuple(why.split(": ", 1))}
    for one in report["rejected"]:
        record = store.record(one["record_key"])
        assert record is not None
        assert (record.verified_level, record.trial) == ("full", one["trial"])
    assert why in report["stopped_because"]
    assert command(*words, code=1)["rejected"] == report["rejected"], "also where all is known"
    assert run([*words, "--db", str(store.path)]) == 1
    printed = capsys.readouterr()
    for one in report["rejected"]:
        assert f"trial {one['trial']}: {why}" in printed.out
    assert f"every candidate failed the full check: {why}" in printed.err
    error = command("best", MATMUL, code=3)["error"]
    assert f"tuned, but every candidate failed the full check: {why}" in error["message"]
    assert "Tune it first" not in error["advice"]


@pytest.mark.parametrize("rate", [1.0, 0.6])
def test_a_job_tells_of_each_candidate_that_failed_its_full_check(
    rate: float, tmp_path: Path, store: Store, api: TestClient
) -> None:
    """In its document, its events, its trials and on its page, with a best or without."""
    (tmp_path / "machine.json").write_text(json.dumps({"confirm_failure_rate": rate}))
    settings = Settings(measurer_folder=tmp_path)
    request = read_job(
        {
            "workload": MATMUL,
            "target": HOST.to_json(),
            "budget": {"trials": 8},
            "measurer": "simulated:machine.json",
        },
        settings,
    )
    job, _ = store.create_job(request.to_json(), body_hash="x", flight_key=request.flight_key)
    context = JobContext(store, 60.0, threading.Event(), publish=lambda *_: Published())
    assert Worker(context, "test", poll_secs=0.01).work_once()
    document = api.get(f"/v1/jobs/{job.id}").json()
    rejected = document["result"]["rejected"]
    assert rejected
    assert (document["best"] is None) == (rate == 1.0) == (document["state"] == "FAILED")
    why = "wrong_result: simulated: full check failed"
    if document["best"] is None:
        assert document["error"]["rejected"] == rejected
        assert f"every candidate failed the full check: {why}" in document["error"]["detail"]
    told = [e.data for e in store.events_after(job.id) if e.kind == "rejected"]
    assert told == rejected
    trials = api.get(f"/v1/jobs/{job.id}/trials").json()["trials"]
    failed = {t["trial"]: t["full_check"] for t in trials if t["full_check"]}
    wanted = {r["trial"]: {n: r[n] for n in ("status", "detail", "record_key")} for r in rejected}
    assert {n: check for n, check in failed.items() if check["status"] != "ok"} == wanted
    if document["best"] is not None:
        assert failed[document["best"]["trial"]]["status"] == "ok"
    page = api.get(f"/jobs/{job.id}", headers={"Accept": "text/html"}).text
    for one in rejected:
        assert f"/records/{one['record_key']}" in page
    assert "simulated: full check failed" in page
