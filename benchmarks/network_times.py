"""How long a network takes to tune, from a cold process, until its total time has converged.

    python -m benchmarks.network_times resnet50 mobilenet_v2 bert_base      # empty database
    python -m benchmarks.network_times resnet18 --after resnet50            # a relative is known
    python -m benchmarks.network_times --table-only

A network is a file of `benchmarks/networks`: its layers in operator spelling, with the number of
their calls as weights; bert_large has 384 positions and bert_base 128, as in the benchmarks of
oneDNN. Each run is a process of its own with a generous budget (`--seconds`). At every event,
the total is the sum of weight times the best time so far over the layers; it exists once every
layer has a time. It has converged at the end of the run that took longest (`--runs`). The figures
are

- the time from the start of the process until the total is within 3 % of the converged one for
  good, and until it exists at all;
- the converged total over the total of the first choices (the first trial of each layer, or the
  first that succeeds).

With `--after`, the other network is tuned before in the same database, and the model of that
database is trained. Run it on a quiet machine. One JSON line per run goes to
`benchmarks/results/network_times.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tilewright as tw
from tilewright.service.resolve.entries import read_entries
from tilewright.service.training import train_all
from tilewright.tuner.many.entries import distinct_tasks
from tilewright.tuner.many.report import ManyEvent
from tilewright.tuner.process.linux import process_age_secs

FOLDER = Path(__file__).with_name("networks")
RESULTS = Path(__file__).with_name("results") / "network_times.jsonl"
WITHIN = 0.03


@dataclass
class Curve:
    """The first and the best weighted time of each of `layers` layers, and their total whenever it
    changes, as pairs of seconds since the start of the process and seconds per call."""

    layers: int
    firsts: dict[int, float] = field(default_factory=dict)
    bests: dict[int, float] = field(default_factory=dict)
    totals: list[tuple[float, float]] = field(default_factory=list)

    def add(self, at_secs: float, layer: int, weighted_secs: float) -> None:
        """Enter the best weighted time of a layer so far."""
        self.firsts.setdefault(layer, weighted_secs)
        self.bests[layer] = weighted_secs
        if len(self.bests) == self.layers:
            total = sum(self.bests.values())
            if not self.totals or total != self.totals[-1][1]:
                self.totals.append((at_secs, total))

    @property
    def first_secs(self) -> float | None:
        """The total of the first choices, or None if a layer has no time."""
        return sum(self.firsts.values()) if self.totals else None

    def within(self, converged_secs: float) -> float | None:
        """Return the time from which on the total is within `WITHIN` of `converged_secs`, or
        None."""
        found: float | None = None
        for at_secs, total in self.totals:
            if total > (1.0 + WITHIN) * converged_secs:
                found = None
            elif found is None:
                found = at_secs
        return found


def layers_of(network: str) -> list[dict[str, Any]]:
    """Return the entries of a network, which is a name in `benchmarks/networks` or a file."""
    path = Path(network) if network.endswith(".json") else FOLDER / f"{network}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def tune_here(network: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Tune a network in this process, and return the line of its run."""
    layers = layers_of(network)
    curve = Curve(len(distinct_tasks(read_entries(layers, tw.parse))))

    def listen(event: ManyEvent) -> None:
        if event.task.weighted_secs is not None:
            curve.add(process_age_secs(), event.task.number, event.task.weighted_secs)

    report = tw.tune_many(
        layers,
        asked.target,
        threads=asked.threads,
        budget=tw.Budget(trials=asked.trials, seconds=asked.seconds),
        measurer=asked.measurer,
        database=asked.db,
        on_event=listen,
    )
    return {
        "network": network,
        "after": asked.after,
        "threads": asked.threads,
        "measurer": asked.measurer,
        "layers": curve.layers,
        "wall_secs": process_age_secs(),
        "trials": sum(task.trials for task in report.tasks),
        "failed": {t.name: t.error.message for t in report.tasks if t.error is not None},
        "stopped_because": report.stopped_because,
        "first_secs": curve.first_secs,
        "converged_secs": report.weighted_secs if report.complete else None,
        "totals": curve.totals,
    }


def measured(network: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Tune a network in a cold process with a database that knows the network `asked.after`, or
    nothing."""
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "network.sqlite"
        if asked.after is not None:
            _cold(asked.after, database, asked)
            with tw.open_database(database) as store:
                train_all(store)
        return _cold(network, database, asked)


def _cold(network: str, database: Path, asked: argparse.Namespace) -> dict[str, Any]:
    """Return the line of a run in a process of its own."""
    words = [sys.executable, "-m", "benchmarks.network_times", network, "--here"]
    words += ["--db", str(database)]
    for name in ("threads", "seconds", "trials", "measurer", "target", "after"):
        value = getattr(asked, name)
        if value is not None:
            words += [f"--{name}", str(value)]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return a Markdown table: a row per run."""
    rows = [
        "| network | database | layers | s to all layers | s to within 3 % | first choices |"
        " total, ms | trials | wall, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        same = [other for other in lines if _case(other) == _case(line)]
        longest = max(same, key=lambda other: float(other["wall_secs"]))
        converged, first = longest["converged_secs"], line["first_secs"]
        curve = Curve(line["layers"], totals=[(at, total) for at, total in line["totals"]])
        within = None if converged is None else curve.within(converged)
        cells = [
            line["network"],
            f"after {line['after']}" if line["after"] else "empty",
            str(line["layers"]),
            f"{curve.totals[0][0]:.1f}" if curve.totals else "-",
            "-" if within is None else f"{within:.1f}",
            "-" if converged is None or first is None else f"{converged / first:.3f}",
            "-" if line["converged_secs"] is None else f"{1e3 * line['converged_secs']:.3f}",
            str(line["trials"]),
            f"{line['wall_secs']:.1f}",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _case(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["network"], line["after"], line["threads"], line["measurer"]


def main(arguments: list[str] | None = None) -> int:
    """Measure and print the table; exit code 1 if a layer of a network has no best."""
    parser = argparse.ArgumentParser(prog="benchmarks.network_times")
    names = sorted(path.stem for path in FOLDER.glob("*.json"))
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(names)}, or files")
    parser.add_argument("--after", help="a network that the database knows before")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300.0, help="budget of a run")
    parser.add_argument("--trials", type=int, default=64, help="limit of each layer")
    parser.add_argument("--runs", type=int, default=1, help="runs of each network")
    parser.add_argument("--measurer", default="local", help="as of `tilewright tune`")
    parser.add_argument("--target", default="native", help="as of `tilewright tune`")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--db", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.here:
        print(json.dumps(tune_here(asked.networks[0], asked)))
        return 0
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    with asked.out.open("a", encoding="utf-8") as file:
        for network in [] if asked.table_only else asked.networks:
            for _ in range(asked.runs):
                file.write(json.dumps(measured(network, asked)) + "\n")
                file.flush()
    lines = [json.loads(line) for line in asked.out.read_text(encoding="utf-8").splitlines()]
    print(table(lines))
    return int(any(line["failed"] for line in lines))


if __name__ == "__main__":
    sys.exit(main())
