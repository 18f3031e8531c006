"""Kill the parts of a running service with SIGKILL at random moments and see what is left.

    python benchmarks/kill_service.py [--kills 50] [--seed 0] [--db URL]

One service, one database, jobs all the time; what each job's event stream told is written down.
In turn the API (which is the worker's supervisor), the worker, or both are killed, at a moment
drawn by chance, start-up included. Afterwards every trial that was told must be stored and listed
once, every job must have ended in success, `db check` must find nothing and no process may be left.

A line for each kill, then one line of JSON. Exit code 1 if anything was lost. Ctrl-C ends it early,
with what it came to by then.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tilewright.db import Store, open_store  # noqa: E402
from tilewright.service.client import Client, Refused, Unreachable  # noqa: E402

COMMAND = "import sys; from tilewright.service.cli import main; main(sys.argv[1:])"
PARTS = ("api", "worker", "both")
_MARK = "TILEWRIGHT_KILL_MARK"
_PATIENCE_SECS = 120.0
_LONGEST_STEP_SECS = 0.5
_LATENCY_SECS = 0.01
_TRIALS = 60


@dataclass
class Told:
    """What the event streams told: record keys by job and trial."""

    trials: dict[str, dict[int, str]] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    jobs: list[str] = field(default_factory=list)

    def tell(self, job_id: str, trial: int, key: str) -> None:
        known = self.trials.setdefault(job_id, {})
        if trial in known:
            self.twice.append(f"job {job_id}: trial {trial} was told twice")
        known[trial] = key


@dataclass
class Summary:
    """What a series of kills came to. No `problems`: all is well."""

    kills: dict[str, int] = field(default_factory=dict)
    jobs: int = 0
    told: int = 0
    stored: int = 0
    recovery_secs: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class Service:
    """`tilewright serve`, started again whenever it was killed, always on the same port."""

    def __init__(self, db: str, folder: Path, **environment: str) -> None:
        self.mark = uuid.uuid4().hex
        self._environment = {**os.environ, **environment, _MARK: self.mark}
        self._words = ["serve", "--db", db, "--measurer-folder", str(folder), "--json"]
        self._log = (folder / "service.log").open("ab")
        self.process = self._start("0")
        assert self.process.stdout is not None
        lines: list[bytes] = []
        while lines[-1:] != [b"}\n"]:
            lines.append(self.process.stdout.readline())
            if not lines[-1]:
                raise SystemExit("the service did not start")
        self.url = str(json.loads(b"".join(lines))["url"])

    def _start(self, port: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", COMMAND, *self._words, "--port", port],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=self._environment,
        )

    def restart_if_dead(self) -> bool:
        """Start it again if it ended; whether it had."""
        if self.process.poll() is None:
            return False
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = self._start(self.url.rpartition(":")[2])
        return True

    def worker(self) -> psutil.Process | None:
        with suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children():
                if "tilewright.service.jobs.process" in child.cmdline():
                    return child
        return None

    def kill(self, part: str) -> bool:
        """SIGKILL; whether there was something to kill."""
        worker = self.worker()
        if part != "worker":
            self.process.kill()
            self.process.wait()
        if part != "api" and worker is not None:
            with suppress(psutil.Error):
                worker.kill()
        return part != "worker" or worker is not None

    def stop(self) -> list[str]:
        """SIGTERM; what is still there two seconds after."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(_PATIENCE_SECS)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self._log.close()
        end = time.monotonic() + 2.0
        while (left := self._family()) and time.monotonic() < end:
            time.sleep(0.05)
        return left

    def _family(self) -> list[str]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_MARK) == self.mark:
                    found.append(" ".join(process.cmdline()))
        return found


@contextmanager
def customers(url: str, told: Told, seed: int) -> Iterator[threading.Event]:
    """Two threads that submit jobs and follow each to its end, until the event is set."""
    enough = threading.Event()

    def follow(number: int) -> None:
        count = 0
        with Client(url, timeout_secs=_PATIENCE_SECS, retries=1000) as client:
            while not enough.is_set():
                count += 1
                _one_job(client, told, seed + 1000 * number + count)

    threads = [threading.Thread(target=follow, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    try:
        yield enough
    finally:
        enough.set()
        for thread in threads:
            thread.join(2 * _PATIENCE_SECS)


def _one_job(client: Client, told: Told, seed: int) -> None:
    # A service that was away for longer than a call may take: the next job will do.
    with suppress(Unreachable, Refused):
        job = client.submit(
            "matmul:M=24,N=16,K=20",
            trials=_TRIALS,
            seed=seed,
            strategy="random",
            measurer="simulated:machine.json",
        )
        told.jobs.append(job.id)
        for event in client.events(job.id):
            if event.kind == "trial":
                told.tell(job.id, event.data["trial"], event.data["record_key"])


def run(kills: int, seed: int, db: str, folder: Path) -> Summary:
    """Kill `kills` times; what it came to. Prints a line for each."""
    (folder / "machine.json").write_text(json.dumps({"seed": 5, "latency_secs": _LATENCY_SECS}))
    rng = random.Random(seed)
    told, summary, counts = Told(), Summary(), Counter[str]()
    service = Service(db, folder)
    enough = threading.Event()
    with _interrupted_by(enough), open_store(db) as store, customers(service.url, told, seed):
        while sum(counts.values()) < kills and not enough.is_set():
            # One in four within the time in which a worker starts.
            pause = rng.uniform(0.0, 0.6) if rng.random() < 0.25 else rng.uniform(0.5, 2.0)
            time.sleep(pause)
            part = PARTS[sum(counts.values()) % len(PARTS)]
            if not service.kill(part):
                continue
            counts[part] += 1
            seen, start = store.counts().records, time.monotonic()
            service.restart_if_dead()
            if rng.random() < 0.75:
                _wait_until_it_goes_on(service, store, seen, summary, start)
            print(f"{part:<8} after {pause:.2f} s, {seen} records stored", flush=True)
        _wait_until_it_goes_on(service, store, store.counts().records, summary, None)
    summary.problems += [f"still there: {left}" for left in service.stop()]
    summary.kills = dict(counts)
    with open_store(db) as store:
        _look(store, told, summary)
    return summary


@contextmanager
def _interrupted_by(enough: threading.Event) -> Iterator[None]:
    """SIGINT sets `enough` within the block, where this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: enough.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _wait_until_it_goes_on(
    service: Service, store: Store, seen: int, summary: Summary, start: float | None
) -> None:
    """Until more than `seen` records are stored; the seconds since `start` are noted."""
    spent, last = 0.0, time.monotonic() if start is None else start
    while store.counts().records <= seen:
        service.restart_if_dead()
        if spent > _PATIENCE_SECS:
            summary.problems.append(f"nothing went on within {_PATIENCE_SECS:g} s of a kill")
            return
        time.sleep(0.02)
        # Of a second in which this program was stopped itself, as by SIGSTOP, little counts.
        now = time.monotonic()
        spent, last = spent + min(now - last, _LONGEST_STEP_SECS), now
    if start is not None:
        summary.recovery_secs.append(spent)


def _look(store: Store, told: Told, summary: Summary) -> None:
    """Hold what is stored against what was told."""
    summary.jobs = len(told.jobs)
    summary.told = sum(map(len, told.trials.values()))
    summary.problems += told.twice
    for job_id in told.jobs:
        job = store.get_job(job_id)
        if job is None or str(job.state) != "SUCCEEDED":
            state = None if job is None else f"{job.state} {job.error}"
            summary.problems.append(f"job {job_id} is {state}")
            continue
        stored = {trial: record.key for trial, record in store.job_trials(job_id)}
        summary.stored += len(stored)
        assert job.result is not None
        total = job.result["trials"]["total"]
        if sorted(stored) != list(range(1, total + 1)):
            summary.problems.append(f"job {job_id}: {len(stored)} trials listed, not {total}")
        lost = [t for t, key in told.trials.get(job_id, {}).items() if stored.get(t) != key]
        summary.problems += [f"job {job_id}: trial {t} was told and is lost" for t in lost]
        again = Counter(e.data["trial"] for e in _events(store, job_id) if e.kind == "trial")
        summary.problems += [
            f"job {job_id}: {n} events of trial {t}" for t, n in again.items() if n > 1
        ]
    summary.problems += [f"db check: {p.kind} {p.subject}: {p.detail}" for p in store.check()]


def _events(store: Store, job_id: str) -> list[Any]:
    found: list[Any] = []
    while page := store.events_after(job_id, found[-1].id if found else 0, 1000):
        found += page
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="draws the moments")
    parser.add_argument("--db", default="", help="a database to use; default: a new SQLite file")
    options = parser.parse_args()
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        db = options.db or str(Path(folder, "killed.sqlite"))
        summary = run(options.kills, options.seed, db, Path(folder))
        if summary.problems:
            print(Path(folder, "service.log").read_text()[-4000:], file=sys.stderr)
    secs = sorted(summary.recovery_secs)
    print(
        json.dumps(
            {
                "kills": summary.kills,
                "jobs": summary.jobs,
                "told": summary.told,
                "stored": summary.stored,
                "recovery_secs_median": round(secs[len(secs) // 2], 2) if secs else None,
                "recovery_secs_max": round(secs[-1], 2) if secs else None,
                "problems": summary.problems,
                "seed": options.seed,
                "wall_secs": round(time.perf_counter() - start, 1),
            }
        )
    )
    return 1 if summary.problems else 0


if __name__ == "__main__":
    sys.exit(main())
