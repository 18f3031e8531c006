"""What happens around a service: parts die, the database is held, full, or gone."""

from __future__ import annotations

import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

from tests.support.service import served
from tests.support.service.jobs import queued, read
from tests.support.service.records import fake_run
from tests.support.service.served import PATIENCE_SECS
from tilewright.db import Store, open_store
from tilewright.db.errors import StoreFull, StoreHeld, StoreUnreachable
from tilewright.db.values.job_states import JobState
from tilewright.service.answers.preparer_pool import PreparerPool
from tilewright.service.answers.publish import Published
from tilewright.service.client import Client
from tilewright.service.jobs.heartbeat import Role
from tilewright.service.jobs.run import JobContext
from tilewright.service.jobs.supervisor import Supervisor
from tilewright.service.jobs.worker import Worker, WorkerSettings, coordinate

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer

MATMUL = "matmul:M=24,N=16,K=20"


def until(found: Callable[[], Any]) -> Any:
    """What `found` gives, once that is true."""
    end = time.monotonic() + PATIENCE_SECS
    while not (value := found()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return value


@contextmanager
def serving(
    db: Path | str, folder: Path | None = None, **environment: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A service with a simulated machine in `folder`, by default that of its database."""
    folder = folder or Path(db).parent
    (folder / "machine.json").write_text('{"latency_secs": 0.02}')
    with served.serving(db, folder, **environment) as running:
        yield running


def worker_of(process: subprocess.Popen[str]) -> psutil.Process | None:
    for child in psutil.Process(process.pid).children():
        if "tilewright.service.jobs.process" in child.cmdline():
            return child
    return None


def has_ended(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def is_ready(url: str) -> bool:
    return httpx2.get(f"{url}/readyz", timeout=PATIENCE_SECS).status_code == 200


@pytest.mark.parametrize("delay_secs", [0.0, 0.2])
def test_a_worker_never_outlives_its_parent(tmp_path: Path, delay_secs: float) -> None:
    """Not even one whose parent is killed while it starts: as an orphan it would keep the lock."""
    code = (
        "import sys, time; from tilewright.service.jobs.supervisor import Supervisor;"
        "from tilewright.service.jobs.worker import WorkerSettings;"
        f"s = Supervisor(WorkerSettings({str(tmp_path / 'none.sqlite')!r}, standby=True),"
        "drain_secs=1, on_hopeless=lambda: None); s.start();"
        "\nwhile not s.pid: pass\nprint(s.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        time.sleep(delay_secs)
        parent.kill()
    until(lambda: has_ended(worker))


def test_a_held_database_stops_nothing_for_good(tmp_path: Path) -> None:
    db = tmp_path / "held.sqlite"
    with serving(db, TILEWRIGHT_STORE_SECS="0.3") as (url, _), Client(url) as client:
        until(lambda: is_ready(url))
        job = client.submit(MATMUL, trials=60, strategy="random", measurer="simulated:machine.json")
        until(lambda: client.status(job.id).progress["trials_done"] > 2)
        holder = sqlite3.connect(db, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        body = {"workload": MATMUL, "measurer": "simulated:machine.json", "seed": 7}
        with Client(url, retries=0) as once:
            writers = [
                threading.Thread(
                    target=httpx2.post,
                    args=(f"{url}/v1/jobs",),
                    kwargs={"json": body, "timeout": PATIENCE_SECS},
                )
                for _ in range(40)
            ]
            for writer in writers:
                writer.start()
            refused = httpx2.post(f"{url}/v1/jobs", json=body, timeout=PATIENCE_SECS)
            assert refused.status_code == 503
            assert refused.headers["content-type"] == "application/problem+json"
            assert int(refused.headers["retry-after"]) > 0
            assert httpx2.get(f"{url}/healthz", timeout=PATIENCE_SECS).status_code == 200
            assert once.status(job.id).id == job.id, "readers go on while it is held"
            time.sleep(1.5)  # longer than the worker waits for a lock
            holder.execute("ROLLBACK")
            holder.close()
            for writer in writers:
                writer.join()
        assert client.submit(MATMUL, trials=4, seed=9, measurer="simulated:machine.json").id
        assert client.wait(job.id, timeout_secs=PATIENCE_SECS).state == "SUCCEEDED"
        assert len(list(client.trials(job.id))) == 60


@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_a_database_that_was_taken_away_is_told(tmp_path: Path, fate: str) -> None:
    db = tmp_path / "gone.sqlite"
    with serving(db) as (url, _):
        until(lambda: is_ready(url))
        db.rename(tmp_path / "elsewhere.sqlite")
        if fate == "replaced":
            shutil.copy(tmp_path / "elsewhere.sqlite", db)
        told = httpx2.get(f"{url}/readyz", timeout=PATIENCE_SECS)
        assert told.status_code == 503
        assert str(db) in told.json()["detail"]
        refused = httpx2.post(f"{url}/v1/jobs", json={"workload": MATMUL}, timeout=PATIENCE_SECS)
        assert refused.status_code == 503
        assert refused.json()["code"] == "database_replaced"
        assert httpx2.get(f"{url}/healthz", timeout=PATIENCE_SECS).status_code == 200
        (tmp_path / "elsewhere.sqlite").replace(db)
        assert is_ready(url), "the same file put back is as good as before"


def test_a_worker_that_dies_again_and_again_is_not_ready() -> None:
    supervisor = Supervisor(
        WorkerSettings(""),
        drain_secs=1.0,
        on_hopeless=lambda: None,
        command=[sys.executable, "-c", "import time; time.sleep(0.05)"],
    )
    assert not supervisor.health().ready
    supervisor.start()
    try:
        until(lambda: "died" in supervisor.health().reason)
        assert not supervisor.health().ready
    finally:
        supervisor.stop()


def test_a_full_disk_is_waited_out(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    job = queued(store)
    monkeypatch.setattr("tilewright.service.timeouts.STORE_RETRY_SECS", 0.01)
    add, full = store.add, [True, False, True, True]

    def add_if_there_is_room(records: Any) -> None:
        if full and full.pop(0):
            raise StoreFull("no room left")
        add(records)

    monkeypatch.setattr(store, "add", add_if_there_is_room)
    context = JobContext(
        store, 5.0, threading.Event(), run=fake_run(5), publish=lambda *_: Published()
    )
    assert Worker(context, "test").work_once()
    assert not full, "every fault was met"
    assert read(store, job).state is JobState.SUCCEEDED
    assert [trial for trial, _ in store.job_trials(job.id)] == [1, 2, 3, 4, 5]
    assert context.counters.take()["store_errors"] >= 3


def test_a_job_left_behind_is_taken_up_at_once(store: Store) -> None:
    job = queued(store)
    left = store.lease_job("killed", lease_secs=3600.0)
    assert left is not None
    context = JobContext(
        store, 5.0, threading.Event(), run=fake_run(), publish=lambda *_: Published()
    )
    worker = Worker(context, "next")
    assert not worker.work_once(), "its lease has not ended"
    assert coordinate(store, threading.Event(), standby=False)
    assert worker.work_once(), "whoever coordinates knows that nobody else is at work"
    assert read(store, job).state is JobState.SUCCEEDED


def test_stopping_does_not_wait_for_requests_that_wait_for_the_database(tmp_path: Path) -> None:
    db = tmp_path / "stuck.sqlite"
    with serving(db, TILEWRIGHT_STORE_SECS="600", TILEWRIGHT_DRAIN_SECS="2") as (url, process):
        until(lambda: is_ready(url))
        holder = sqlite3.connect(db, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        stuck = threading.Thread(target=_post_for_nothing, args=(url,))
        stuck.start()
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_SECS)
        holder.close()
        stuck.join()


def _post_for_nothing(url: str) -> None:
    try:
        httpx2.post(f"{url}/v1/jobs", json={"workload": MATMUL}, timeout=600.0)
    except httpx2.TransportError:
        return


def test_dropped_connections_to_a_server_cost_no_trial(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    db = postgres_server.fresh()
    name = urlsplit(db).path.strip("/")
    with serving(db, tmp_path) as (url, _), Client(url) as client:
        until(lambda: is_ready(url))
        job = client.submit(MATMUL, trials=60, strategy="random", measurer="simulated:machine.json")
        statuses = set()
        for _ in range(20):
            postgres_server.cut_connections(name)
            answer = httpx2.get(f"{url}/v1/jobs/{job.id}", timeout=PATIENCE_SECS)
            statuses.add(answer.status_code)
            assert answer.status_code == 200 or "retry-after" in answer.headers
            time.sleep(0.05)
        assert statuses <= {200, 503}
        assert client.wait(job.id, timeout_secs=PATIENCE_SECS).state == "SUCCEEDED"
        assert [t["trial"] for t in client.trials(job.id)] == list(range(1, 61))
    with open_store(db) as store:
        assert store.check() == []
        told = [e.data["trial"] for e in store.events_after(job.id, 0, 1000) if e.kind == "trial"]
        assert len(told) == len(set(told)), "no trial is told twice"


def test_a_standby_is_ready_and_takes_over_when_the_leader_is_gone(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    db = postgres_server.fresh()

    def role_of(url: str) -> str:
        answer = httpx2.get(f"{url}/readyz", timeout=PATIENCE_SECS)
        return str(answer.json().get("role")) if answer.status_code == 200 else "not ready"

    def gauges(url: str) -> dict[str, str]:
        text = httpx2.get(f"{url}/metrics", timeout=PATIENCE_SECS).text
        return dict(re.findall(r"^(tilewright_(?:role|worker)\S*) (\S+)$", text, re.M))

    with serving(db, tmp_path) as (first, leader):
        until(lambda: role_of(first) == "leader")
        with (
            serving(db, tmp_path) as (second, _),
            serving(db, tmp_path, TILEWRIGHT_WORKERS="false") as (third, _),
        ):
            until(lambda: role_of(second) == "standby")
            assert role_of(third) == "replica"
            told = gauges(second)
            assert told["tilewright_worker_up"] == "1.0"
            assert told['tilewright_role{role="standby"}'] == "1.0"
            assert told['tilewright_role{role="leader"}'] == "0.0"
            assert gauges(third)['tilewright_role{role="replica"}'] == "1.0"
            with Client(second) as client:
                job = client.submit(MATMUL, trials=4, measurer="simulated:machine.json")
                assert client.wait(job.id, timeout_secs=PATIENCE_SECS).state == "SUCCEEDED"
            leader.send_signal(signal.SIGKILL)
            until(lambda: role_of(second) == "leader")
            assert gauges(second)['tilewright_role{role="leader"}'] == "1.0"


def test_a_standby_outlasts_a_server_that_is_away(store: Store) -> None:
    """And a lock that is lost makes a standby of a leader."""
    roles: list[Role] = []
    stop = threading.Event()
    answers: list[Exception | None] = [StoreHeld("another"), StoreUnreachable("away"), None]

    def coordinate_store(*, blameless: bool = False) -> None:
        error = answers.pop(0)
        if error is not None:
            raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "coordinate", coordinate_store)
        patch.setattr(stop, "wait", lambda secs: False)
        assert coordinate(store, stop, standby=True, take_role=roles.append)
        assert roles == [Role.STANDBY, Role.LEADER]
        answers[:] = [StoreHeld("another")]
        with pytest.raises(StoreHeld, match="another"):
            coordinate(store, stop, standby=False, take_role=roles.append)


def test_helpers_that_fail_are_started_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a full disk, where each that comes up cannot write."""
    now = [0.0]
    started: list[float] = []
    preparers = PreparerPool("none", 2, clock=lambda: now[0])

    class Ended:
        def poll(self) -> int:
            return 4

    def start(self: PreparerPool) -> Any:
        started.append(now[0])
        return Ended()

    monkeypatch.setattr(PreparerPool, "_start", start)
    for _ in range(600):
        preparers.wake(5)
        now[0] += 1.0
    assert len(started) <= 20
    assert started[-1] - started[-2] >= 60.0


def test_a_worker_that_says_nothing_any_more_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose native code never returns, or that was stopped."""
    monkeypatch.setattr("tilewright.service.timeouts.WORKER_HUNG_SECS", 0.2)
    monkeypatch.setattr("tilewright.service.timeouts.SUPERVISOR_POLL_SECS", 0.1)
    talks_once = (
        "import json, os, sys, time; told = json.load(sys.stdin);"
        "os.write(told['beat_fd'], b'{}\\n'); time.sleep(60)"
    )
    supervisor = Supervisor(
        WorkerSettings("none"),
        drain_secs=1.0,
        on_hopeless=lambda: None,
        command=[sys.executable, "-S", "-c", talks_once],
    )
    supervisor.start()
    try:
        until(lambda: supervisor.pid is not None)
        first = supervisor.pid
        until(lambda: supervisor.pid not in (None, first))
        assert supervisor.health().deaths >= 1
    finally:
        supervisor.stop()


def test_who_ended_a_worker_is_told_to_the_next_one() -> None:
    """Killed from outside: no job of it is to blame; ended by itself: one may be."""
    told: list[dict[str, object]] = []
    ends = (
        "import json, os, sys; told = json.load(sys.stdin);"
        "os.write(told['beat_fd'], (json.dumps(told) + chr(10)).encode());"
        "os.abort() if told['blameless'] else os.kill(os.getpid(), 9)"
    )
    supervisor = Supervisor(
        WorkerSettings("none"),
        drain_secs=1.0,
        on_hopeless=lambda: None,
        on_counts=told.append,
        command=[sys.executable, "-S", "-c", ends],
    )
    supervisor.start()
    until(lambda: len(told) >= 3)
    supervisor.stop()
    assert [one["blameless"] for one in told[:3]] == [False, True, False]
