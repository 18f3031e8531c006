"""What slow and dead readers of event streams cost a running job.

    python benchmarks/slow_followers.py [--followers 50] [--pairs 6] [--window-secs 5]

On a simulated machine without latency one long job runs. Windows without followers and windows in
which some ask for its events alternate (A B B A: what drifts falls on both). Half of them never
read, half read 1 KiB a second. Each window's trials a second come from the job's own progress; a
pair of windows gives one ratio. Prints, with the mean of all pairs and its standard error, what
API and worker computed for a trial, memory of the API and of the kernel's sockets, and whether a
reader that stopped and went on by `Last-Event-ID` missed an event; then one line of JSON.
Exit code 1 if one was missed.

Machines are noisier than the effect: run it several times and give all files of JSON lines to
`--join FILE...`, which prints what they say together.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tilewright.service.client import Client  # noqa: E402

COMMAND = "import sys; from tilewright.service.cli import main; main(sys.argv[1:])"
TRIALS = 50_000  # more than any run gets to
SLOW_BYTES, SLOW_SECS = 256, 0.25
PAGE_BYTES = os.sysconf("SC_PAGESIZE")


@dataclass(frozen=True)
class Window:
    """A stretch of the job: trials and seconds by its own progress, CPU seconds of the API and of
    the worker with all it started."""

    trials: int
    secs: float
    api_secs: float
    worker_secs: float

    @property
    def rate(self) -> float:
        return self.trials / self.secs


@contextmanager
def service(folder: Path) -> Iterator[tuple[str, int]]:
    """A service and the process id of its API."""
    (folder / "machine.json").write_text('{"seed": 5}')
    words = ["serve", "--port", "0", "--db", str(folder / "db.sqlite"), "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words, "--measurer-folder", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=os.environ,
    )
    assert process.stdout is not None
    try:
        lines: list[str] = []
        while lines[-1:] != ["}\n"]:
            lines.append(process.stdout.readline())
        yield json.loads("".join(lines))["url"], process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


@contextmanager
def following(url: str, job_id: str, count: int) -> Iterator[None]:
    """`count` followers of the job: the even ones never read, the odd ones slowly."""
    place = urlsplit(url)
    request = f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n".encode()
    with ExitStack() as stack:
        slow = []
        for number in range(count):
            one = stack.enter_context(socket.create_connection((place.hostname, place.port)))
            one.sendall(request)
            if number % 2:
                one.setblocking(False)
                slow.append(one)
        over = threading.Event()
        reader = threading.Thread(target=read_slowly, args=(slow, over))
        reader.start()
        try:
            yield
        finally:
            over.set()
            reader.join()


def read_slowly(sockets: list[socket.socket], over: threading.Event) -> None:
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            selector.register(one, selectors.EVENT_READ)
        while not over.wait(SLOW_SECS):
            for key, _ in selector.select(0) if sockets else []:
                key.fileobj.recv(SLOW_BYTES)  # type: ignore[union-attr]


def cpu_secs(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def worker_secs(api: psutil.Process) -> float:
    """CPU seconds of all that the API's process started and that still lives."""
    total = 0.0
    for child in api.children(recursive=True):
        try:
            times = child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def window(client: Client, job_id: str, api: psutil.Process, secs: float) -> Window:
    before, api_before, worker_before = progress(client, job_id), cpu_secs(api), worker_secs(api)
    time.sleep(secs)
    after = progress(client, job_id)
    return Window(
        after["trials_done"] - before["trials_done"],
        after["wall_secs"] - before["wall_secs"],
        cpu_secs(api) - api_before,
        worker_secs(api) - worker_before,
    )


def progress(client: Client, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.status(job_id).document["progress"]
    return found


def socket_bytes() -> int:
    """Memory of all TCP sockets of this machine."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        if line.startswith("TCP:"):
            return int(line.split()[-1]) * PAGE_BYTES
    return 0


def run(followers: int, pairs: int, secs: float) -> dict[str, Any]:
    ratios: list[float] = []
    alone: list[Window] = []
    followed: list[Window] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder)) as (url, pid),
        Client(url) as client,
    ):
        api = psutil.Process(pid)
        job = client.submit(
            "matmul:M=64,N=64,K=64",
            trials=TRIALS,
            strategy="random",
            measurer="simulated:machine.json",
        )
        stopped = next(client.events(job.id))
        while progress(client, job.id)["trials_done"] < 100:
            time.sleep(0.1)
        rss, sockets = api.memory_info().rss, socket_bytes()
        for number in range(pairs):
            for count in (0, followers) if number % 2 == 0 else (followers, 0):
                if count:
                    with following(url, job.id, count):
                        followed.append(window(client, job.id, api, secs))
                        peak = socket_bytes()
                else:
                    alone.append(window(client, job.id, api, secs))
            ratios.append(followed[-1].rate / alone[-1].rate)
            print(f"{alone[-1].rate:8.1f} {followed[-1].rate:8.1f} trials/s", flush=True)
        growth = api.memory_info().rss - rss
        client.cancel(job.id)
        client.wait(job.id)
        rest = {event.id for event in client.events(job.id, after=stopped.id)}
        missed = {event.id for event in client.events(job.id)} - {stopped.id} - rest
    return {
        "followers": followers,
        "ratios": [round(ratio, 4) for ratio in ratios],
        "trials_a_second": [round(rate_of(group), 1) for group in (alone, followed)],
        "api_share": [round(share(group), 4) for group in (alone, followed)],
        "worker_ms_a_trial": [round(worker_ms(group), 3) for group in (alone, followed)],
        "api_mib_more": round(growth / 2**20, 1),
        "socket_mib_more": round((peak - sockets) / 2**20, 1),
        "missed": len(missed),
    }


def rate_of(windows: list[Window]) -> float:
    return sum(one.trials for one in windows) / sum(one.secs for one in windows)


def share(windows: list[Window]) -> float:
    """How much of one core the API took."""
    return sum(one.api_secs for one in windows) / sum(one.secs for one in windows)


def worker_ms(windows: list[Window]) -> float:
    return 1e3 * sum(one.worker_secs for one in windows) / sum(one.trials for one in windows)


def slower(ratios: list[float]) -> dict[str, Any]:
    """How much slower a followed job is, by the mean of the logarithms of all pairs."""
    logs = [math.log(ratio) for ratio in ratios]
    error = statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    mean = statistics.fmean(logs)
    return {
        "pairs": len(ratios),
        "slower": round(1 - math.exp(mean), 4),
        "slower_median": round(1 - statistics.median(ratios), 4),
        "standard_error": round(error, 4),
        "below_with_95_percent": round(1 - math.exp(mean - 1.645 * error), 4),
    }


def weighted(runs: list[list[float]]) -> dict[str, Any]:
    """The same of several runs, each weighted by the inverse of its own variance: a run in which
    the machine was disturbed says less."""
    logs = [[math.log(ratio) for ratio in run] for run in runs if len(run) > 1]
    weights = [len(run) / statistics.variance(run) for run in logs]
    mean = sum(w * statistics.fmean(run) for w, run in zip(weights, logs, strict=True))
    mean /= sum(weights)
    error = 1 / math.sqrt(sum(weights))
    return {
        "runs": len(logs),
        "slower": round(1 - math.exp(mean), 4),
        "standard_error": round(error, 4),
        "below_with_95_percent": round(1 - math.exp(mean - 1.645 * error), 4),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--followers", type=int, default=50)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--window-secs", type=float, default=5.0)
    parser.add_argument("--join", nargs="+", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.join:
        lines = [line for file in options.join for line in file.read_text().splitlines()]
        runs = [json.loads(line) for line in lines if '"ratios"' in line]
        print(json.dumps(slower([ratio for one in runs for ratio in one["ratios"]])))
        print(json.dumps(weighted([one["ratios"] for one in runs])))
        return 0
    found = run(options.followers, options.pairs, options.window_secs)
    print(json.dumps(slower(found["ratios"])))
    print(json.dumps(found))
    return 1 if found["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
