"""Image pipelines of several stages against Halide.

    HL_NUM_THREADS=2 python -m benchmarks.stencils [--threads 2] [--only TEXT] [--out FILE.jsonl]

Each pipeline is tuned from nothing. Halide's side is the fastest of 16 to 72 schedules written by
hand and its three autoschedulers. Then the kernel, that schedule and the best autoscheduled one are
called in turn on the same image, and the medians are compared. Results are compared with those of
NumPy in f64. `--clock cpu` measures the processor time of one thread instead, for a machine that
does other work. It needs the package `halide` (`pip install halide==21.0.0`).
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw

from .pipelines import PIPELINES, Pipeline, expected

ROUNDS, ROUND_SECS = 30, 0.02
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def medians(calls: dict[str, Callable[[], object]], clock: Callable[[], float]) -> dict[str, float]:
    """Return the median seconds of each call. The calls take turns, so that changes of the clock
    frequency affect all of them alike."""
    repeats = {}
    for name, call in calls.items():
        call()
        start = clock()
        call()
        repeats[name] = max(int(ROUND_SECS / max(clock() - start, 1e-7)), 1)
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = clock()
            for _ in range(repeats[name]):
                call()
            found[name].append((clock() - start) / repeats[name])
    return {name: statistics.median(secs) for name, secs in found.items()}


def measured(pipeline: Pipeline, threads: int, clock: str, peer: Any) -> dict[str, Any]:
    """Return one row of the table: seconds of each side, and Halide's schedules."""
    shape, result = pipeline.shapes
    image = tw.placeholder("image", shape)
    workload = tw.Workload.of(pipeline.build(image, *result), inputs=[image])
    began = time.perf_counter()
    report = tw.tune(workload, threads=threads)
    tune_secs = time.perf_counter() - began
    assert report.best is not None, report.stopped_because
    kernel = tw.build(workload, threads=threads, trace=report.best.trace)
    given = np.random.default_rng(0).random(shape, np.float32)
    mine = np.empty(result, np.float32)
    call = kernel.bind(given, out=mine)
    lanes = tw.native_target(threads=threads).vector_bits // 32
    first, automatic = peer.best(pipeline.name, given, result, lanes, threads)
    calls = {"tilewright": call, "halide": first.call, "autoscheduled": automatic.call}
    secs = medians(calls, CLOCKS[clock])
    right = expected(pipeline.name, given)
    call()
    for found in (mine, first.output, automatic.output):
        np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-4 * np.abs(right).max())
    return {
        "name": pipeline.name,
        "threads": threads,
        "clock": clock,
        "tune_secs": tune_secs,
        "fraction_of_bound": report.best.fraction_of_bound,
        "seconds": secs,
        "halide": first.schedule,
        "autoscheduler": automatic.schedule,
    }


def table(found: list[dict[str, Any]]) -> Iterator[str]:
    yield "| pipeline | us | of the bound | Halide | its autoschedulers | tuned in, s |"
    yield "|---|---|---|---|---|---|"
    ratios: dict[str, list[float]] = {"halide": [], "autoscheduled": []}
    for one in found:
        own = one["seconds"]["tilewright"]
        for side, all_of in ratios.items():
            all_of.append(one["seconds"][side] / own)
        yield (
            f"| {one['name']} | {own * 1e6:.0f} | {one['fraction_of_bound']:.2f} |"
            f" {ratios['halide'][-1]:.2f}x ({one['halide']}) |"
            f" {ratios['autoscheduled'][-1]:.2f}x ({one['autoscheduler']}) |"
            f" {one['tune_secs']:.1f} |"
        )
    for side, all_of in ratios.items():
        mean = math.exp(statistics.fmean(map(math.log, all_of)))
        yield f"\nagainst {side}: geometric mean {mean:.2f}x, least {min(all_of):.2f}x"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--clock", choices=sorted(CLOCKS), default="wall")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    peer = importlib.import_module("benchmarks.stencils.halide_peer")
    found = []
    for pipeline in PIPELINES:
        if asked.only in pipeline.name:
            found.append(measured(pipeline, asked.threads, asked.clock, peer))
            print(json.dumps(found[-1]), flush=True)
    if asked.out is not None:
        asked.out.write_text("".join(json.dumps(one) + "\n" for one in found), encoding="utf-8")
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
