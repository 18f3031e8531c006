"""Kill `tilewright tune` with SIGKILL at random moments and see what is left.

    python benchmarks/kill_tune.py [--kills 10] [--trials 32] [--seed 0] [--measurer local]

Each kill has a database of its own. Every second one takes the whole family of processes, the
others only the command itself, whose helpers must then end by themselves. Afterwards every trial
that was reported must be stored, `db check` must find nothing, and the same command must finish
the job by measuring what is missing and nothing else.

A table on standard output, then one line of JSON. Exit code 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tilewright.db import open_store  # noqa: E402

# The command itself, but for one thing: every trial is told as a line of JSON. With --json it
# tells none, and without only those a reader wants to see.
COMMAND = """
import json, sys
from contextlib import contextmanager
from types import SimpleNamespace
from tilewright.service.cli import main, run_tune

@contextmanager
def reporter(output, flops, trials):
    def tell(e):
        print(json.dumps({"trial": e["trial"], "key": e["record_key"]}), flush=True)

    yield SimpleNamespace(on_event=tell, on_activity=lambda activity: None)

run_tune.trial_reporter = reporter
main(sys.argv[1:])
"""
_MARK = "TILEWRIGHT_KILL_MARK"
_ENDING_SECS = 2.0
_PATIENCE_SECS = 300.0


@dataclass(frozen=True)
class Plan:
    """One kill: `secs` after the start of the command, or once `reported` trials were told.

    `family`: of all processes, else of the command alone.
    """

    secs: float
    family: bool
    reported: float = inf


@dataclass
class Outcome:
    """What a kill left behind, and what the same command made of it. No `problems`: all is well."""

    plan: Plan
    reported: int = 0
    stored: int = 0
    measured_again: int = 0
    was_running: bool = True
    problems: list[str] = field(default_factory=list)


def plans(whole_secs: float, seed: int) -> Iterator[Plan]:
    """Moments drawn by chance from a run that takes `whole_secs`, in whatever it is doing then."""
    rng = random.Random(seed)
    for number in count():
        yield Plan(rng.uniform(0.15, 1.0) * whole_secs, family=number % 2 == 0)


def whole_run_secs(words: Sequence[str], database: Path) -> float:
    """How long the command takes if nobody kills it. CalledProcessError if it fails."""
    start = time.perf_counter()
    subprocess.run(_command(words, database), capture_output=True, cwd=ROOT, check=True)
    return time.perf_counter() - start


def _command(words: Sequence[str], database: Path) -> list[str]:
    return [sys.executable, "-c", COMMAND, *words, "--json", "--db", str(database)]


def kill_once(words: Sequence[str], plan: Plan, database: Path, trials: int) -> Outcome:
    """Run `tune` with these words, kill it, look, and run it again to its end."""
    outcome = Outcome(plan)
    mark = uuid.uuid4().hex
    command = _command(words, database)
    reported = _run_and_kill(command, plan, mark, outcome)
    outcome.reported = len(reported)
    left = _still_there(mark)
    if left:
        outcome.problems.append(f"{len(left)} processes left: {left[0]}")
    before = _stored(database)
    outcome.stored = len(before)
    outcome.problems += [f"trial {t} is lost" for t, key in reported if key not in before]
    outcome.problems += _check(database)
    again = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=_PATIENCE_SECS, check=False
    )
    if again.returncode:
        outcome.problems.append(f"the same command: exit code {again.returncode}, {again.stderr}")
        return outcome
    *events, report = _documents(again.stdout)
    outcome.measured_again = sum(event["key"] not in before for event in events)
    after = _stored(database)
    if report["trials"]["total"] != trials:
        outcome.problems.append(f"{report['trials']['total']} trials in the end, not {trials}")
    missing = trials - len(before)
    if outcome.measured_again != missing:
        outcome.problems.append(f"{outcome.measured_again} measured, {missing} were missing")
    if not before <= after or len(after) != trials:
        outcome.problems.append(f"{len(after)} records in the end, not {trials} with those before")
    if report["best"] is None or not report["best"]["verified"]:
        outcome.problems.append("no verified best in the end")
    outcome.problems += _check(database)
    return outcome


def _run_and_kill(
    command: list[str], plan: Plan, mark: str, outcome: Outcome
) -> list[tuple[int, str]]:
    """(trial, record key) of everything that was reported before the end."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT,
        env={**os.environ, _MARK: mark},
    )  # fmt: skip
    assert process.stdout is not None
    told = bytearray()
    end = time.monotonic() + plan.secs
    while (left := end - time.monotonic()) > 0 and told.count(b'"key"') < plan.reported:
        if select.select([process.stdout], [], [], left)[0]:
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                break
            told += piece
    outcome.was_running = process.poll() is None
    family = [psutil.Process(process.pid)] if outcome.was_running else []
    if plan.family and family:
        family += family[0].children(recursive=True)
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.send_signal(signal.SIGKILL)
    process.wait()
    told += process.stdout.read()
    process.stdout.close()
    events = [json.loads(line) for line in told.splitlines() if line.startswith(b'{"trial"')]
    return [(event["trial"], event["key"]) for event in events]


def _still_there(mark: str) -> list[str]:
    """Command lines of processes of the killed run that have not ended within two seconds."""
    end = time.monotonic() + _ENDING_SECS
    while True:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(_MARK) == mark:
                    found.append(" ".join(process.cmdline()))
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.05)


def _stored(database: Path) -> set[str]:
    """Keys of the records of trials; those of the final confirmation are not trials."""
    if not database.exists():
        return set()
    text = io.StringIO()
    with open_store(str(database)) as store:
        store.export(text)
    entries = [json.loads(line) for line in text.getvalue().splitlines()]
    records = [entry for entry in entries if entry.get("kind") == "record"]
    return {r["key"] for r in records if r["record"]["verified_level"] == "quick"}


def _check(database: Path) -> list[str]:
    """What `tilewright db check` finds."""
    if not database.exists():
        return []
    with open_store(str(database), create=False, upgrade=False) as store:
        return [f"db check: {p.kind} {p.subject}: {p.detail}" for p in store.check()]


def _documents(text: str) -> list[Any]:
    """The JSON documents that follow one another in `text`."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(text.rstrip()):
        document, at = decoder.raw_decode(text, at)
        found.append(document)
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def _row(outcome: Outcome) -> str:
    killed = "family" if outcome.plan.family else "command"
    cells = (
        killed if outcome.was_running else "too late",
        f"{outcome.plan.secs:.2f} s",
        outcome.reported,
        outcome.stored,
        outcome.measured_again,
        "; ".join(outcome.problems) or "none",
    )
    return "".join(f"{cell!s:<16}" for cell in cells)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0, help="draws the moments")
    parser.add_argument("--measurer", default="local", help="as for `tilewright tune`")
    parser.add_argument("--workload", default="matmul:M=96,N=96,K=96")
    options = parser.parse_args()
    words = ["tune", options.workload, "--trials", str(options.trials), "--strategy", "random"]
    words += ["--measurer", options.measurer]
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    heads = ("killed", "after", "reported", "stored", "measured again", "problems")
    print("".join(f"{head:<16}" for head in heads))
    with tempfile.TemporaryDirectory() as folder:
        whole_secs = whole_run_secs(words, Path(folder, "whole.sqlite"))
        moments = plans(whole_secs, options.seed)
        while sum(o.was_running for o in outcomes) < options.kills:
            if len(outcomes) >= 3 * options.kills:
                raise SystemExit("most runs ended before they could be killed: --trials more")
            plan = next(moments)
            database = Path(folder, f"{len(outcomes)}.sqlite")
            outcome = kill_once(words, plan, database, options.trials)
            outcomes.append(outcome)
            print(_row(outcome), flush=True)
    summary = {
        "kills": sum(o.was_running for o in outcomes),
        "too_late": sum(not o.was_running for o in outcomes),
        "reported": sum(o.reported for o in outcomes),
        "stored": sum(o.stored for o in outcomes),
        "measured_again": sum(o.measured_again for o in outcomes),
        "problems": [problem for o in outcomes for problem in o.problems],
        "seed": options.seed,
        "wall_secs": round(time.perf_counter() - start, 1),
    }
    print(json.dumps(summary))
    return 1 if summary["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
