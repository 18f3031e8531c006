"""Load the machine while it is probed, or while it tunes, and see whether a search is fooled.

    python benchmarks/loaded_probe.py [--load 2] [--trials 48] [--only matmul] [--when probe,taken]

Each case is tuned on a machine that is

- `quiet`: nothing else runs, and the probes are those of the quiet machine (the reference);
- `probe`: probed while `--load` processes spin, then tuned without them;
- `taken`: the same, with probes as a fooled prober would have kept them: half the rate wherever
  several threads share something, a region four times as dear, and no word of doubt;
- `tune`: probed quietly, then tuned while they spin.

A search is fooled if it ends "within ... of the bound" although its best is further than that from
the bound of the quiet machine, or if it reports more than 1.02 of the bound. A table on standard
output, then one line of JSON a row. Exit code 1 if a search was fooled.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tilewright.schedules.spelling import parse_workload  # noqa: E402
from tilewright.schedules.target import Probes, Target  # noqa: E402
from tilewright.schedules.workload.workload import Workload  # noqa: E402
from tilewright.tuner.machine.native_target import ThisMachine, native_target  # noqa: E402
from tilewright.tuner.machine.roofline import bound_for  # noqa: E402
from tilewright.tuner.measure.local import LocalMeasurer  # noqa: E402
from tilewright.tuner.search.strategies.annealing import AT_BOUND_RATIO  # noqa: E402
from tilewright.tuner.session.memory_sink import MemorySink  # noqa: E402
from tilewright.tuner.session.options import SessionOptions  # noqa: E402
from tilewright.tuner.session.report import Budget, TuneReport  # noqa: E402
from tilewright.tuner.session.roofline_bound import PROBE_ERROR  # noqa: E402
from tilewright.tuner.session.run import run_session  # noqa: E402

CASES = (
    ("matmul:M=512,N=512,K=512", 1),
    ("matmul:M=512,N=512,K=512", 2),
    ("matmul:M=64,N=64,K=64", 2),
    ("softmax_mn:M=1024,N=1024", 2),
    ("elementwise_add_relu:M=512,N=512", 2),
    ("elementwise_add_relu:M=4096,N=4096", 2),
)
WHEN = ("quiet", "probe", "taken", "tune")
DRIFT = 1.1
"""By which the clock, and a neighbour's use of memory, move what the quiet machine can do."""


@dataclass(frozen=True, slots=True)
class Row:
    """One search, and what the quiet machine's bound says of it."""

    workload: str
    threads: int
    when: str
    trials: int
    wall_secs: float
    run_secs: float
    fraction_of_bound: float
    of_quiet_bound: float
    stopped_because: str
    raised_by: str | None
    notes: list[str]

    @property
    def fooled(self) -> bool:
        at_bound = "of the bound" in self.stopped_because
        early = at_bound and self.of_quiet_bound * AT_BOUND_RATIO * DRIFT < 1
        return early or self.fraction_of_bound > PROBE_ERROR

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__} | {"fooled": self.fooled}


@contextmanager
def load(processes: int) -> Iterator[None]:
    """So many processes that do nothing but keep a core busy."""
    started = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    time.sleep(0.2 if processes else 0.0)
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def fooled_probes(probes: Probes) -> Probes:
    """What a prober that believes everything would keep of a busy machine."""

    def halved(values: list[float]) -> list[float]:
        return [v if n == 0 else v / 2 for n, v in enumerate(values)]

    return Probes(
        {name: halved(values) for name, values in probes.peak_gflops.items()},
        {name: halved(values) for name, values in probes.bandwidth_gbs.items()},
        4 * probes.parallel_region_secs,
    )


def tune(workload: Workload, target: Target, machine: ThisMachine, trials: int) -> TuneReport:
    """`tuner.tune` for a machine whose probes are kept where we want them."""
    from tilewright.schedules.sketches import space_for

    with LocalMeasurer(workload, target, 0) as measurer:
        return run_session(
            workload,
            space_for(workload, target),
            measurer=measurer,
            sink=MemorySink(),
            budget=Budget(trials=trials),
            options=SessionOptions(machine=machine),
        )


def run(spelled: str, threads: int, when: str, quiet: Target, args: argparse.Namespace) -> Row:
    """One case under one condition, with a cache of its own."""
    workload = parse_workload(spelled)
    with tempfile.TemporaryDirectory() as folder:
        machine = ThisMachine(Path(folder))
        if when == "probe":
            with load(args.load):
                target = native_target(threads, cache_dir=Path(folder))
        else:
            probes = fooled_probes(quiet.probes) if when == "taken" else quiet.probes
            given = Path(folder)
            target = native_target(threads, cache_dir=given, prober=lambda target: probes)
        if when == "taken":  # as if they had been kept for days
            days_ago = time.time() - 3 * 86400
            native_target(
                threads,
                cache_dir=given,
                fresh=True,
                clock=lambda: days_ago,
                prober=lambda t: probes,
            )
        start = time.monotonic()
        with load(args.load if when == "tune" else 0):
            report = tune(workload, target, machine, args.trials)
        wall_secs = time.monotonic() - start
    if report.best is None:
        raise SystemExit(f"{spelled}: {report.stopped_because}")
    return Row(
        spelled, threads, when, report.trials["total"], wall_secs, report.best.run_secs,
        report.best.fraction_of_bound,
        bound_for(workload, quiet.with_threads(threads)).secs / report.best.run_secs,
        report.stopped_because, report.bound["raised_by"], report.bound["notes"],
    )  # fmt: skip


def table_line(row: Row) -> str:
    return (
        f"{row.workload:36s} {row.threads} {row.when:6s} {row.trials:3d} trials"
        f" {row.wall_secs:5.1f} s  {row.fraction_of_bound:5.2f} of its bound"
        f" {row.of_quiet_bound:5.2f} of the quiet one  {row.raised_by or '-':6s}"
        f" {'FOOLED ' if row.fooled else ''}{row.stopped_because}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Try to fool a search by loading the machine.")
    parser.add_argument("--load", type=int, default=2, help="processes that spin")
    parser.add_argument("--trials", type=int, default=48)
    parser.add_argument("--only", default="", help="cases with this in their name")
    parser.add_argument("--when", default=",".join(WHEN))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        quiet = native_target(1, cache_dir=Path(folder))
    if quiet.probes.doubtful:
        print("this machine is busy without us: nothing can be shown here", file=sys.stderr)
        return 1
    rows = []
    for spelled, threads in CASES:
        for when in args.when.split(","):
            if args.only in spelled and threads <= quiet.cores:
                rows.append(run(spelled, threads, when, quiet, args))
                print(table_line(rows[-1]), flush=True)
    for row in rows:
        print(json.dumps(row.to_json()))
    return int(any(row.fooled for row in rows))


if __name__ == "__main__":
    sys.exit(main())
