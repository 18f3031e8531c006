"""Tune one case from nothing, emit what was found, and race it: what most rows do.

Tuning runs through the command line into a database of its own; what is timed afterwards is the
emitted object, linked like any user's.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.suite.cases import Case
from benchmarks.suite.context import ROOT, Context, RowError, environment, tilewright
from benchmarks.suite.crew import Crew, RaceError
from benchmarks.suite.race import PEERS, build_library, race
from benchmarks.suite.registry import workload_of

INPUT_SEED = 1


def tune_and_race(
    context: Context, key: str, case: Case, *, threads: int, trials: int, seed: int,
    peers: tuple[str, ...], seconds: float, confirm: bool,
) -> dict[str, Any]:  # fmt: skip
    """The row's figures: `tune` (the report without its trace and curve) and `race`.

    With `confirm` also what `tilewright bench` says: a second opinion by other code.
    """
    folder = context.fresh_folder(key)
    flags = ["--db", str(folder / "tune.sqlite"), "--threads", str(threads)]
    report, process_secs = tilewright(
        context.folder,
        "tune",
        *case.arguments,
        "--trials",
        str(trials),
        "--seed",
        str(seed),
        *flags,
    )
    if report["best"] is None:
        raise RowError(f"tuning found nothing that works: {report['trials']['by_status']}")
    tuned = _emit(context, folder / "best", case, flags, "exact")
    nothing = ["--db", str(folder / "empty.sqlite"), "--threads", str(threads)]
    default = _emit(context, folder / "default", case, nothing, "default")
    bench = _bench(context, case, flags, seconds) if confirm else None
    sides: dict[str, dict[str, Any]] = {
        "kernel": {"case": case.name, "library": str(tuned)},
        "peak": {"target": context.target},
        "default": {"case": case.name, "library": str(default)},
        **{peer: {"case": case.name} for peer in peers},
    }
    try:
        with Crew(folder) as crew:
            result = race(sides, crew, threads=threads, seconds=seconds, seed=INPUT_SEED)
    except RaceError as error:
        raise RowError(str(error)) from error
    return {
        "case": case.name,
        "threads": threads,
        "tune": shortened(report),
        "process_secs": process_secs,
        "compile_secs": compile_times(folder / "tune.sqlite", context.folder),
        "race": result,
        "bench": bench,
        **derived(report, result, threads),
    }


def _emit(context: Context, folder: Path, case: Case, flags: list[str], grade: str) -> Path:
    """The kernel as a shared library."""
    tilewright(
        context.folder, "emit", *case.arguments, *flags, "-o", str(folder), "--name", "kernel",
        "--min-grade", grade,
    )  # fmt: skip
    try:
        return build_library(folder / "kernel.o", len(workload_of(case).arguments))
    except RaceError as error:
        raise RowError(str(error)) from error


def _bench(context: Context, case: Case, flags: list[str], seconds: float) -> dict[str, Any]:
    """Speed-ups over NumPy and the default schedule, as `tilewright bench` finds them."""
    document, _ = tilewright(
        context.folder, "bench", *case.arguments, *flags, "--against", "numpy,default",
        "--seconds", str(seconds),
    )  # fmt: skip
    return document


def compile_times(database: Path, cache: Path) -> dict[str, float]:
    """Median and extremes of the compile times of all trials in `database`, seconds."""
    program = str(Path(sys.executable).with_name("tilewright"))
    done = subprocess.run(
        [program, "export", "--db", str(database)],
        capture_output=True, text=True, cwd=ROOT, env=environment(cache), check=False,
    )  # fmt: skip
    if done.returncode:
        raise RowError(f"tilewright export: exit code {done.returncode}: {done.stderr[-300:]}")
    times = sorted(_compile_times_in(done.stdout))
    if not times:
        raise RowError("tilewright export: no record has a compile time")
    return {
        "median": statistics.median(times), "least": times[0], "most": times[-1],
        "trials": len(times),
    }  # fmt: skip


def _compile_times_in(lines: str) -> list[float]:
    times = []
    for line in lines.splitlines():
        document = json.loads(line)
        record = document.get("record", document)
        result = record.get("result") if isinstance(record, dict) else None
        if result and record.get("verified_level") == "quick" and result["compile_secs"] > 0:
            times.append(float(result["compile_secs"]))
    return times


def shortened(report: dict[str, Any]) -> dict[str, Any]:
    best = {k: v for k, v in report["best"].items() if k != "trace"}
    kept = (
        "workload", "target", "seed", "space_size", "trials", "wall_secs", "wall_secs_by_phase",
        "stopped_because", "default", "cost_model",
    )  # fmt: skip
    return {**{k: report[k] for k in kept}, "best": best}


def derived(report: dict[str, Any], result: dict[str, Any], threads: int) -> dict[str, Any]:
    """The ratios the table is about. All are within the race, so the clock does not matter."""
    if "ratio" not in result["peak"]:
        raise RowError(f"no peak to compare with: {result['peak']['missing']}")
    flops = float(report["workload"]["flops"])
    # The side "peak" takes this long for 1e9 operations on each thread.
    peak_ratio = result["peak"]["ratio"]
    scale = flops / threads / 1e9
    found: dict[str, Any] = {
        "gflops": flops / result["kernel"]["run_secs"] / 1e9,
        "peak_gflops": threads / result["peak"]["run_secs"],
        "of_peak": {k: v * scale for k, v in peak_ratio.items()},
    }
    if "ratio" in result.get("default", {}):
        found["default_against_best"] = 1 / result["default"]["ratio"]["median"]
    speedups = {peer: result[peer]["ratio"] for peer in PEERS if "ratio" in result.get(peer, {})}
    if speedups:
        strongest = min(speedups, key=lambda peer: speedups[peer]["median"])
        found["against_best_peer"] = {"peer": strongest, **speedups[strongest]}
    return found
