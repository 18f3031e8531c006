"""How long a user waits before anything is measured: both commits in pairs, in alternation."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.commits.making import PROGRAM
from benchmarks.commits.trees import ROOT, Side
from benchmarks.suite.crew import RaceError

MACHINE = ROOT / "benchmarks" / "machines" / "plain.json"
ROWS = {
    "first": ("mm_512x512x512", "R50_07_b1", "two layers"),
    "trial": ("R50_07_b1", "two layers"),
}
TRIALS = 32


@dataclass(frozen=True, slots=True)
class Question:
    """One thing that is timed: `first`, `tilewright best` of a row that nobody tuned, in a cold
    process and without a database; or `trial`, what proposing a trial costs a search."""

    kind: str
    row: str
    workload: Path

    def ask(self, side: Side, target: Path) -> dict[str, float]:
        """The figures of one process. RaceError if it fails."""
        return {"first": self._first, "trial": self._trial}[self.kind](side, target)

    def _first(self, side: Side, target: Path) -> dict[str, float]:
        database = side.home / "empty.sqlite"
        database.unlink(missing_ok=True)
        command = side.tilewright(
            "best", str(self.workload), "--min-grade", "default", "--json",
            "--db", str(database), "--target", str(target),
        )  # fmt: skip
        wall_secs, cpu_secs, _ = _run(command, side)
        return {"wall_ms": 1e3 * wall_secs, "cpu_ms": 1e3 * cpu_secs}

    def _trial(self, side: Side, target: Path) -> dict[str, float]:
        arguments = (str(self.workload), str(target), str(MACHINE), str(TRIALS))
        _, _, out = _run(side.command(str(PROGRAM), "trials", *arguments), side)
        answer = json.loads(out)
        return {"propose_ms": answer["propose_ms"], "all_ms": answer["all_ms"]}


def pair(
    question: Question, sides: Mapping[str, Side], targets: Mapping[str, Path], order: Sequence[str]
) -> dict[str, Any]:
    """One process of each commit, in this order."""
    found = {name: question.ask(sides[name], targets[name]) for name in order}
    return {"kind": question.kind, "row": question.row, "order": list(order), **found}


def _run(command: list[str], side: Side) -> tuple[float, float, str]:
    """Wall seconds and processor seconds of a process, its children's included; what it said."""
    with (side.home / "latency.log").open("wb") as log:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True,
            env=side.environment(), cwd=side.home,
        )  # fmt: skip
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        wall_secs = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
    if process.returncode:
        said = (side.home / "latency.log").read_text(errors="replace").strip()
        raise RaceError(f"{side.name}: exit code {process.returncode}: {said[-300:]}")
    return wall_secs, used.ru_utime + used.ru_stime, out
