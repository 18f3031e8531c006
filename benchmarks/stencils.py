"""Image pipelines of several stencils against Halide.

    HL_NUM_THREADS=2 python -m benchmarks.stencils [--threads 2] [--only TEXT] [--out FILE.jsonl]

Each pipeline is tuned from nothing. Halide's side is the fastest of some 70 schedules written by
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw

ROUNDS, ROUND_SECS = 30, 0.02
ROWS, COLUMNS = 1536, 2560
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}

Read = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`halo` is the number of rows and columns by which the image exceeds the result."""

    name: str
    halo: int
    build: Callable[[Any, int, int], Any]
    """`build(image, rows, columns)` returns the result of so many rows and columns."""

    @property
    def shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The shapes of the image and of the result."""
        return (ROWS, COLUMNS), (ROWS - self.halo, COLUMNS - self.halo)


def _blur(image: Any, rows: int, columns: int) -> Any:
    across = tw.compute(
        "across",
        (rows + 2, columns),
        lambda y, x: (image[y, x] + image[y, x + 1] + image[y, x + 2]) * (1 / 3),
    )
    return tw.compute(
        "out",
        (rows, columns),
        lambda y, x: (across[y, x] + across[y + 1, x] + across[y + 2, x]) * (1 / 3),
    )


def _unsharp(image: Any, rows: int, columns: int) -> Any:
    down = tw.compute(
        "down", (rows, columns + 6), lambda y, x: _gaussian(lambda d: image[y + d, x])
    )
    across = tw.compute("across", (rows, columns), lambda y, x: _gaussian(lambda d: down[y, x + d]))
    return tw.compute(
        "out",
        (rows, columns),
        lambda y, x: image[y + 3, x + 3] * 2.5 - across[y, x] * 1.5,
    )


def _gaussian(at: Read) -> Any:
    pairs = (at(2) + at(4)) * 0.1907 + (at(1) + at(5)) * 0.1311
    return at(3) * 0.2161 + pairs + (at(0) + at(6)) * 0.0702


def _right(f: Any, y: Any, x: Any) -> Any:
    first = (f[y, x + 2] - f[y, x]) + 2.0 * (f[y + 1, x + 2] - f[y + 1, x])
    return first + (f[y + 2, x + 2] - f[y + 2, x])


def _down(f: Any, y: Any, x: Any) -> Any:
    first = (f[y + 2, x] - f[y, x]) + 2.0 * (f[y + 2, x + 1] - f[y, x + 1])
    return first + (f[y + 2, x + 2] - f[y, x + 2])


def _sobel(image: Any, rows: int, columns: int) -> Any:
    right = tw.compute("right", (rows, columns), lambda y, x: _right(image, y, x))
    down = tw.compute("down", (rows, columns), lambda y, x: _down(image, y, x))
    return tw.compute(
        "out",
        (rows, columns),
        lambda y, x: tw.sqrt(right[y, x] * right[y, x] + down[y, x] * down[y, x]),
    )


def _harris(image: Any, rows: int, columns: int) -> Any:
    wide = (rows + 2, columns + 2)
    right = tw.compute("right", wide, lambda y, x: _right(image, y, x) * (1 / 12))
    down = tw.compute("down", wide, lambda y, x: _down(image, y, x) * (1 / 12))
    pairs = {"xx": (right, right), "yy": (down, down), "xy": (right, down)}
    products = {
        name: tw.compute(name, wide, lambda y, x, a=a, b=b: a[y, x] * b[y, x])
        for name, (a, b) in pairs.items()
    }
    xx, yy, xy = (
        tw.compute(f"sum_{name}", (rows, columns), lambda y, x, f=f: _box(f, y, x))
        for name, f in products.items()
    )
    return tw.compute(
        "out",
        (rows, columns),
        lambda y, x: (
            xx[y, x] * yy[y, x]
            - xy[y, x] * xy[y, x]
            - 0.04 * (xx[y, x] + yy[y, x]) * (xx[y, x] + yy[y, x])
        ),
    )


def _box(f: Any, y: Any, x: Any) -> Any:
    rows = [f[y + d, x] + f[y + d, x + 1] + f[y + d, x + 2] for d in range(3)]
    return rows[0] + rows[1] + rows[2]


PIPELINES = (
    Pipeline("blur", 2, _blur),
    Pipeline("unsharp", 6, _unsharp),
    Pipeline("sobel", 2, _sobel),
    Pipeline("harris", 4, _harris),
)


def expected(name: str, image: Any) -> Any:
    """Return the result in f64, by slices of NumPy."""
    f = image.astype(np.float64)
    if name == "blur":
        across = (f[:, :-2] + f[:, 1:-1] + f[:, 2:]) / 3
        return (across[:-2] + across[1:-1] + across[2:]) / 3
    if name == "unsharp":
        rows, columns = f.shape[0] - 6, f.shape[1] - 6
        down = _gaussian(lambda d: f[d : d + rows])
        across = _gaussian(lambda d: down[:, d : d + columns])
        return f[3:-3, 3:-3] * 2.5 - across * 1.5
    top, middle, bottom = f[:-2], f[1:-1], f[2:]
    down = (bottom - top)[:, :-2] + 2 * (bottom - top)[:, 1:-1] + (bottom - top)[:, 2:]
    column = top + 2 * middle + bottom
    right = column[:, 2:] - column[:, :-2]
    if name == "sobel":
        return np.sqrt(right * right + down * down)
    xx, yy, xy = (_boxes(a * b) / 144 for a, b in ((right, right), (down, down), (right, down)))
    return xx * yy - xy * xy - 0.04 * (xx + yy) ** 2


def _boxes(f: Any) -> Any:
    across = f[:, :-2] + f[:, 1:-1] + f[:, 2:]
    return across[:-2] + across[1:-1] + across[2:]


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
    peer = importlib.import_module("benchmarks.halide_peer")
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
