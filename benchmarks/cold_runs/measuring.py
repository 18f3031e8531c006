"""Tunes one workload after another, each by `tilewright tune --json` in a new process, and races
the best kernels against libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cold_runs.libraries import Race, raced
from benchmarks.commits.rows import Row
from benchmarks.prior.machines import target_of
from tilewright.service.resolve.targets import read_target

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "import sys; from tilewright.service.cli import main; main(sys.argv[1:])"

KEPT = (
    "wall_secs",
    "wall_secs_by_phase",
    "trials",
    "curve",
    "default",
    "final_race",
    "cost_model",
    "space_size",
    "stopped_because",
    "database_model",
    "related",
)
"""The fields of a report that a row of results keeps."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is tuned, where, and with which database.

    `database` is `empty` (a new database for each workload) or `shared` (one for all workloads,
    next to `out`, which a continued run uses again). `more` has further words of the command.
    `race` follows each command, if it is not None.
    """

    rows: Sequence[Row]
    threads: int
    machine: str
    database: str
    out: Path
    more: tuple[str, ...] = ()
    race: Race | None = None


def measure(plan: Plan) -> None:
    """Append a line to `plan.out` for each row that the file lacks."""
    done = {json.loads(line)["name"] for line in _lines(plan.out)}
    missing = [row for row in plan.rows if row.name not in done]
    with tempfile.TemporaryDirectory() as folder:
        target = _target_spec(plan, Path(folder))
        for number, row in enumerate(missing):
            measured = _tuned(row, plan, target)
            with plan.out.open("a") as file:
                file.write(json.dumps(measured) + "\n")
            wall_secs, reason = measured["command_secs"], measured.get("stopped_because")
            print(
                f"[{number + 1}/{len(missing)}] {row.name}: {wall_secs:.1f} s, "
                f"{reason or measured.get('error')}{_race_words(measured.get('race'))}",
                flush=True,
            )


def _race_words(race: dict[str, Any] | None) -> str:
    if race is None:
        return ""
    if "error" in race:
        return f"; no race: {race['error']}"
    sides = race["against"].items()
    return "".join(f"; {side['speedup'] or 0:.2f}x {name}" for name, side in sides)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def _target_spec(plan: Plan, folder: Path) -> str:
    """Return the machine as `--target` takes it. The probes run here once, before any timing."""
    target = target_of(plan.machine)
    if plan.machine == "native":
        return "native"
    file = folder / "target.json"
    file.write_text(json.dumps(target.to_json()))
    return str(file)


def _tuned(row: Row, plan: Plan, target: str) -> dict[str, Any]:
    """Return the row of results of one command. `command_secs` is its time from the outside."""
    with tempfile.TemporaryDirectory() as folder:
        shared = plan.out.with_suffix(".sqlite").resolve()
        database = shared if plan.database == "shared" else Path(folder) / "tilewright.sqlite"
        command = [sys.executable, "-c", COMMAND, "tune", *row.words, "--json", "--target", target]
        command += ["--threads", str(plan.threads), "--db", str(database), *plan.more]
        # Installed packages have bytecode. Without it, every process would compile all sources.
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        start = time.monotonic()
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        command_secs = time.monotonic() - start
        measured = {
            "name": row.name, "family": row.family, "machine": plan.machine,
            "threads": plan.threads, "database": plan.database, "more": list(plan.more),
            "command_secs": command_secs,
        }  # fmt: skip
        measured |= _from_report(done)
        if plan.race is not None and has_best(measured):
            machine = read_target(target, plan.threads)
            measured["race"] = raced(plan.race, row.workload, machine, plan.machine, str(database))
    return measured


def has_best(measured: dict[str, Any]) -> bool:
    """Return whether the command of this row of results found a best kernel."""
    return bool((measured.get("best") or {}).get("run_secs"))


def _from_report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Return what is kept of the report, or an `error`."""
    try:
        report: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    if "error" in report:
        return {"error": str(report["error"]["message"])}
    best = report["best"] or {}
    kept = {key: report[key] for key in KEPT if key in report}
    chosen = ("run_secs", "gflops", "fraction_of_bound", "bound", "trial")
    return kept | {"cpu": report["target"]["cpu"], "best": {k: best.get(k) for k in chosen}}
