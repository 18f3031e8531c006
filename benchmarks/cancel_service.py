"""Cancel jobs of a running service at random moments, and see how soon it is over.

    python benchmarks/cancel_service.py [--cancels 50] [--seed 0] [--db URL] [--hold-machine]

Jobs of several kinds, small and large, on one thread and on all, are cancelled at a moment drawn by
chance: while the machine is probed, while candidates are made, compiled, checked and timed, in the
final race, in the last check. Told is how many seconds after the request the job was over, and how
many after it the last process that worked for it had ended. With `--hold-machine` this program
holds the machine's lock meanwhile, so that every job waits for it.

A line for each cancel, then one line of JSON. Exit code 1 if one took longer than `MOST_SECS`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.kill_service import Service  # noqa: E402
from tilewright.service.client import Client  # noqa: E402
from tilewright.tuner.machine.machine_lock import machine_lock  # noqa: E402

MOST_SECS = 3.0
KINDS = (
    ("matmul:M=64,N=64,K=64", 1, 12),
    ("matmul:M=4096,N=4096,K=4096", 1, 4),
    ("conv2d_nhwc:N=1,H=56,W=56,CI=64,CO=64,K=3,stride=1,pad=1", 2, 8),
    ("softmax_mn:M=4096,N=4096", 2, 6),
    ("matmul:M=512,N=512,K=512,epilogue=bias+relu", 1, 16),
)
"""Workload, threads, trials."""

LONGEST_SECS = 14.0
_PATIENCE_SECS = 60.0
_LOOK_SECS = 0.02


@dataclass
class Summary:
    """What a series of cancels came to. No `problems`: all is well."""

    over_secs: list[float] = field(default_factory=list)
    quiet_secs: list[float] = field(default_factory=list)
    ended_before: int = 0
    problems: list[str] = field(default_factory=list)


def run(
    cancels: int,
    seed: int,
    db: str,
    folder: Path,
    *,
    hold_machine: bool = False,
    longest_secs: float = LONGEST_SECS,
    most_secs: float = MOST_SECS,
) -> Summary:
    """Cancel `cancels` jobs, each within `longest_secs` of its beginning; what it came to. One that
    takes longer than `most_secs` is a problem. Prints a line for each."""
    rng = random.Random(seed)
    summary = Summary()
    # Probes of its own: they are a phase in which a job may be cancelled like any other.
    service = Service(db, folder, XDG_CACHE_HOME=str(folder / "cache"))
    with ExitStack() as stack:
        stack.callback(service.stop)
        client = stack.enter_context(Client(service.url, timeout_secs=_PATIENCE_SECS))
        if hold_machine:
            stack.enter_context(machine_lock())
        for number in range(cancels):
            if rng.random() < 0.3:
                for probes in (folder / "cache").rglob("*.json"):
                    probes.unlink()
            short = rng.random() < 0.3
            pause = rng.uniform(0.0, min(2.0, longest_secs) if short else longest_secs)
            _cancel_one(client, service, number, pause, most_secs, summary)
    return summary


def _cancel_one(
    client: Client,
    service: Service,
    number: int,
    pause: float,
    most_secs: float,
    summary: Summary,
) -> None:
    workload, threads, trials = KINDS[number % len(KINDS)]
    before = _working(service)
    job = client.submit(workload, threads=threads, trials=trials, seed=1000 + number)
    time.sleep(pause)
    if client.status(job.id).done:
        summary.ended_before += 1
        return
    phase = (client.status(job.id).progress or {}).get("trials_done", 0)
    start = time.monotonic()
    client.cancel(job.id)
    over = quiet = None
    while over is None or quiet is None:
        now = time.monotonic() - start
        if over is None and client.status(job.id).done:
            over = now
        if quiet is None and not _working(service) - before:
            quiet = now
        if now > _PATIENCE_SECS:
            summary.problems.append(f"{workload}: not over {now:.0f} s after the request")
            return
        time.sleep(_LOOK_SECS)
    ended = client.status(job.id)
    summary.over_secs.append(over)
    summary.quiet_secs.append(quiet)
    line = (
        f"{workload[:28]:<28} after {pause:5.2f} s, {phase} trials: {ended.state} {over:.2f} s, "
        f"quiet {quiet:.2f} s"
    )
    print(line, flush=True)
    if max(over, quiet) > most_secs:
        summary.problems.append(line)


def _working(service: Service) -> set[int]:
    """The processes below the worker."""
    worker = service.worker()
    found: set[int] = set()
    if worker is not None:
        with suppress(psutil.Error):
            found = {child.pid for child in worker.children(recursive=True)}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cancels", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0, help="draws the moments")
    parser.add_argument("--db", default="", help="a database to use; default: a new SQLite file")
    parser.add_argument("--hold-machine", action="store_true", help="let every job wait for it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        db = options.db or str(Path(folder, "cancelled.sqlite"))
        summary = run(
            options.cancels,
            options.seed,
            db,
            Path(folder),
            hold_machine=options.hold_machine,
        )
    over, quiet = sorted(summary.over_secs), sorted(summary.quiet_secs)
    print(
        json.dumps(
            {
                "cancels": len(over),
                "ended_before": summary.ended_before,
                "over_secs_median": round(over[len(over) // 2], 2) if over else None,
                "over_secs_max": round(over[-1], 2) if over else None,
                "quiet_secs_max": round(quiet[-1], 2) if quiet else None,
                "problems": summary.problems,
                "seed": options.seed,
            }
        )
    )
    return 1 if summary.problems else 0


if __name__ == "__main__":
    sys.exit(main())
