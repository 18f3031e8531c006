"""What slow and dead readers of event streams cost a running job.

    python benchmarks/slow_followers.py [--followers 50] [--trials 600] [--rounds 2]

A service on a simulated machine without latency runs the same search alone and with followers that
ask for its events and never read them, in turns. Prints trials a second of both, the growth of the
API's memory, and whether a reader that stopped for the whole job and went on by `Last-Event-ID`
missed an event; then one line of JSON. Exit code 1 if one was missed.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from service.client import Client  # noqa: E402

COMMAND = "import sys; from service.cli import main; main(sys.argv[1:])"


@dataclass(frozen=True)
class Outcome:
    """One job: trials a second, and the API's memory afterwards."""

    trials_a_second: float
    api_bytes: int
    missed: int


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


def run_job(url: str, api: int, trials: int, number: int, followers: int) -> Outcome:
    """Run a job that `followers` ask to follow, without ever reading an answer."""
    place = urlsplit(url)
    with Client(url) as client, ExitStack() as sockets:
        job = client.submit(
            f"matmul:M=64,N=64,K={64 + number}",  # each its own: nothing is known of it
            trials=trials,
            strategy="random",
            measurer="simulated:machine.json",
        )
        request = f"GET /v1/jobs/{job.id}/events HTTP/1.1\r\nHost: {place.netloc}\r\n\r\n"
        for _ in range(followers):
            one = sockets.enter_context(socket.create_connection((place.hostname, place.port)))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.sendall(request.encode())
        stopped = next(client.events(job.id))
        done = client.wait(job.id)
        result = done.document["result"]
        rest = [event.id for event in client.events(job.id, after=stopped.id)]
        everything = [event.id for event in client.events(job.id)]
        missed = len(set(everything) - {stopped.id, *rest})
        rate = result["trials"]["total"] / result["wall_secs"]
        return Outcome(rate, psutil.Process(api).memory_info().rss, missed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--followers", type=int, default=50)
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    alone: list[Outcome] = []
    followed: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as (url, api):
        run_job(url, api, 50, 0, 0)  # imports, caches
        kinds = ((alone, 0), (followed, options.followers))
        for number in range(2 * options.rounds):
            group, followers = kinds[number % 4 in (1, 2)]  # A B B A: drift falls on both
            group.append(run_job(url, api, options.trials, number + 1, followers))
            print(f"{followers:>3} followers: {group[-1]}", flush=True)
    rates = [statistics.median(o.trials_a_second for o in group) for group in (alone, followed)]
    summary = {
        "followers": options.followers,
        "trials_a_second_alone": round(rates[0], 1),
        "trials_a_second_followed": round(rates[1], 1),
        "slower": round(1 - rates[1] / rates[0], 3),
        "api_mib_more": round((followed[-1].api_bytes - alone[0].api_bytes) / 2**20, 1),
        "missed": sum(o.missed for o in alone + followed),
    }
    print(json.dumps(summary))
    return 1 if summary["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
