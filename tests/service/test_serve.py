"""The whole service: one command, a job, the same answer as `tune`, and no work lost."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.contracts.store_values import all_records
from tests.support.service.served import COMMAND, PATIENCE_SECS, service
from tilewright.db import open_store
from tilewright.schedules.spelling import parse_workload
from tilewright.schedules.target import Probes
from tilewright.service.cli import run
from tilewright.service.client import Client
from tilewright.tuner.machine.native_target import native_target

MATMUL = "matmul:M=24,N=16,K=20"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of simulated machines, and the databases beside them."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "machine.json").write_text('{"seed": 5}')
    (folder / "slow.json").write_text('{"seed": 5, "latency_secs": 0.05}')
    return folder


Running = tuple[Client, subprocess.Popen[str], str]


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Running]:
    """One service for all tests that need not stop it: starting takes seconds."""
    db = str(folder / "served.sqlite")
    with service(folder, db) as (client, process):
        yield client, process, db


def children(process: subprocess.Popen[str]) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    return found


def start(client: Client, trials: int, seed: int) -> str:
    """A job on the slow machine that has told of its first trial."""
    job = client.submit(
        MATMUL, trials=trials, seed=seed, strategy="random", measurer="simulated:slow.json"
    )
    for event in client.events(job.id):
        if event.kind == "trial":
            break
    return job.id


def test_a_submitted_job_stores_what_a_plain_tune_stores(
    running: Running,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, _, served = running
    job = client.submit(MATMUL, trials=10, seed=3, measurer="simulated:machine.json")
    kinds = [event.kind for event in client.events(job.id)]
    done = client.wait(job.id, timeout_secs=PATIENCE_SECS)
    trials = list(client.trials(job.id))
    assert done.state == "SUCCEEDED"
    assert kinds.count("trial") == 10
    assert kinds[-1] == "done"
    assert [trial["trial"] for trial in trials] == list(range(1, 11))

    # Probes of this machine, taken in between, say nothing of one that does not exist.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    slow_regions = Probes({"f32": [50.0, 100.0]}, {"memory": [10.0, 12.0]}, 5e-3)
    native_target(fresh=True, prober=lambda target: slow_regions)
    plain = str(tmp_path / "plain.sqlite")
    words = ["tune", MATMUL, "--trials", "10", "--seed", "3", "--db", plain, "--json"]
    assert run([*words, "--measurer", f"simulated:{folder}/machine.json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert done.best is not None
    assert done.target is not None
    best = client.best(done.workload["key"], done.target["key"])
    assert best is not None
    assert best.record_key == done.best["record_key"]
    assert done.best["trace"] == report["best"]["trace"]
    assert done.best["run_secs"] == report["best"]["run_secs"]
    assert stored(served, done.document) == stored(plain, done.document)


def stored(db: str, job: dict[str, Any]) -> list[Any]:
    """What was stored, but for times of day and of our own work."""
    with open_store(db) as store:
        records = store.records(job["workload"]["key"], job["target"]["key"])
        return [(r.trial, r.trace, r.result.run_secs, r.verified_level) for r in records]


def test_the_winners_files_are_there_by_their_hash(running: Running) -> None:
    client, _, _ = running
    job = client.submit(MATMUL, trials=10, seed=3, measurer="simulated:machine.json")
    done = client.wait(job.id)
    assert done.target is not None
    best = client.best(done.workload["key"], done.target["key"])
    assert best is not None
    files = best.artefacts
    assert files == done.document["result"]["artefacts"]
    assert client.record(best.record_key or "")["artefacts"] == files
    assert client.blob(files["object"]["key"])[:4] == b"\x7fELF"
    assert b"int matmul(const float *A" in client.blob(files["header"]["key"])
    assert b"define" in client.blob(files["llvm"]["key"])


def test_a_killed_worker_is_replaced_and_its_job_goes_on(running: Running) -> None:
    client, process, _ = running
    job_id = start(client, trials=30, seed=11)
    worker_of(process).kill()
    done = client.wait(job_id, timeout_secs=PATIENCE_SECS)
    trials = [trial["trial"] for trial in client.trials(job_id)]
    assert done.state == "SUCCEEDED"
    assert trials == list(range(1, len(trials) + 1))
    assert len(trials) == done.document["result"]["trials"]["total"]


def worker_of(process: subprocess.Popen[str]) -> psutil.Process:
    [worker] = [p for p in children(process) if "tilewright.service.jobs.process" in p.cmdline()]
    return worker


def test_a_running_job_is_cancelled_within_seconds_and_keeps_its_trials(
    running: Running,
) -> None:
    client, _, _ = running
    job_id = start(client, trials=1000, seed=12)
    assert client.cancel(job_id).state == "CANCELLING"
    done = client.wait(job_id, timeout_secs=PATIENCE_SECS)
    assert done.state == "CANCELLED"
    assert 0 < len(list(client.trials(job_id))) < 1000
    assert done.best is not None, "the best so far is confirmed and in the answer"
    assert done.best["verified"]
    assert done.document["result"]["stopped_because"] == "stopped on request"


def test_a_second_service_on_one_database_is_told_who_holds_it(running: Running) -> None:
    client, process, db = running
    start(client, trials=2, seed=13)  # the worker is up
    second = subprocess.run(
        [sys.executable, "-c", COMMAND, "serve", "--port", "0", "--db", db],
        capture_output=True, text=True, timeout=PATIENCE_SECS, check=False,
    )  # fmt: skip
    assert second.returncode == 4
    assert str(worker_of(process).pid) in second.stderr


def test_a_stopped_service_leaves_nothing_behind_and_goes_on_where_it_was(folder: Path) -> None:
    db = str(folder / "stopped.sqlite")
    with service(folder, db) as (client, process):
        job_id = start(client, trials=30, seed=0)
        left = children(process)
    assert process.returncode == 0
    assert not any(child.is_running() for child in left)
    with open_store(db) as store:
        given_back = store.get_job(job_id)
        assert given_back is not None
        assert given_back.state == "QUEUED"
    with service(folder, db) as (client, _):
        assert client.wait(job_id, timeout_secs=PATIENCE_SECS).state == "SUCCEEDED"


def test_a_port_in_use_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        words = ["serve", "--port", str(port), "--db", str(tmp_path / "x.sqlite")]
        assert run(words) == 1
    assert f"cannot listen on 127.0.0.1:{port}: address already in use" in capsys.readouterr().err


def test_submit_and_status_print_the_jobs_of_a_service(
    running: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _, _ = running
    monkeypatch.setenv("TILEWRIGHT_URL", client.url)
    words = [
        "submit",
        "matmul:M=8,N=8,K=12",
        "--trials",
        "4",
        "--measurer",
        "simulated:machine.json",
    ]
    assert run([*words, "--wait"]) == 0
    told = capsys.readouterr()
    assert "SUCCEEDED" in told.out
    assert "trial 4/4" in told.err
    assert run([*words, "--wait", "--json"]) == 0
    job = json.loads(capsys.readouterr().out)
    assert job["best"]["verified"]
    assert run(["status", job["id"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == job
    assert run(["status"]) == 0
    assert job["id"] in capsys.readouterr().out
    assert run(["watch", job["id"]]) == 0
    assert run(["cancel", job["id"], "--json"]) == 0
    assert run(["submit", "matmul:M=0,N=1,K=1"]) == 2
    assert "M" in capsys.readouterr().err
    assert run(["status", "0" * 26]) == 1


def test_several_workloads_are_submitted_and_watched_as_one_job(
    running: Running,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    client, _, _ = running
    monkeypatch.setenv("TILEWRIGHT_URL", client.url)
    options = ["--trials", "4", "--measurer", "simulated:machine.json"]
    one, other = "matmul:M=8,N=8,K=20", "matmul:M=8,N=8,K=24"
    assert run(["submit", one, other, *options, "--wait"]) == 0
    told = capsys.readouterr()
    assert "SUCCEEDED" in told.out
    assert "2, 2 with a best" in told.out
    for name in (one, other):
        assert f"{name}: " in told.err, "the end of each task is a line"
    document = tmp_path / "workload.json"
    document.write_text(json.dumps(parse_workload(other).to_json()))
    many = tmp_path / "many.json"
    many.write_text(json.dumps([{"workload": one, "weight": 3, "name": "a"}, str(document)]))
    assert run(["submit", "--many", str(many), *options, "--wait", "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    job = json.loads(captured.out)
    assert [(t["name"], t["weight"]) for t in job["result"]["tasks"]] == [("a", 3.0), (other, 1.0)]
    assert [e.data["task"] for e in client.events(job["id"], task="a") if e.kind == "trial"] == []
    assert len(list(client.trials(job["id"], task="a"))) == 4
    assert run(["watch", job["id"]]) == 0
    assert "2, 2 with a best" in capsys.readouterr().out
    many.write_text('{"workload": 1}')
    assert run(["submit", "--many", str(many), *options]) == 2
    assert "must be a list" in capsys.readouterr().err
    many.write_text(json.dumps([one, "nope:M=1"]))
    assert run(["submit", "--many", str(many), *options]) == 2
    assert "entry 2: unknown operator" in capsys.readouterr().err
    many.write_text(json.dumps([one] * 2000))
    assert run(["submit", "--many", str(many), *options]) == 2
    assert "1 to 200" in capsys.readouterr().err
    assert run(["submit", one, "--many", str(many)]) == 2
    assert "either --many FILE or WORKLOADs" in capsys.readouterr().err


def test_ctrl_c_keeps_every_trial_and_says_how_to_go_on(folder: Path, tmp_path: Path) -> None:
    db = str(tmp_path / "store.sqlite")
    words = ["tune", MATMUL, "--trials", "600", "--db", db]
    words += ["--measurer", f"simulated:{folder}/slow.json", "--strategy", "random"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    reported = iter(process.stderr.readline, "")
    assert any("trial 1/600" in line for line in reported)
    process.send_signal(signal.SIGINT)
    report, told = process.communicate(timeout=PATIENCE_SECS)
    assert process.returncode == 130
    assert "the best so far is checked" in told
    assert "stopped on request" in report
    assert "interrupted; every trial that was reported is stored" in told
    assert f"tilewright tune {MATMUL}" in told
    with open_store(db) as store:
        records = all_records(store)
        assert [r.verified_level for r in records].count("full") == 1, "the best so far is kept"
        assert len(records) < 600
