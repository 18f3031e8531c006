"""Draws the speed of the best schedule found so far, trial by trial, from `tune --json` reports.

    tilewright tune matmul:M=512,N=512,K=512 --fresh --json > annealing.json
    tilewright tune matmul:M=512,N=512,K=512 --fresh --strategy random --json > random.json
    tilewright bench matmul:M=512,N=512,K=512 --json > bench.json
    python benchmarks/tuning_curve.py annealing.json random.json --bench bench.json -o curve.svg

The same reports give the same picture, byte for byte. Needs the extra `plot`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0b6e99", "#c9782b", "#5b8a3a", "#8a4a86")
GREY = "#666666"


@dataclass(frozen=True, slots=True)
class Curve:
    """Best speed so far: `gflops[i]` holds from trial `trials[i]` on. `total` trials were run."""

    label: str
    trials: tuple[int, ...]
    gflops: tuple[float, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Level:
    """A speed to compare with, in GFLOP/s."""

    label: str
    gflops: float


def curve_of(report: dict[str, Any]) -> Curve:
    """The curve of one report. ValueError if no candidate of it passed."""
    points = report["curve"]
    name = f"{report['strategy']}, seed {report['seed']}"
    if not points:
        raise ValueError(f"the report of {name} has no curve: no candidate passed")
    flops = report["workload"]["flops"]
    return Curve(
        label=f"{name}: {report['trials']['total']} trials in {report['wall_secs']:.0f} s",
        trials=tuple(p["trial"] for p in points),
        gflops=tuple(flops / p["best_run_secs"] / 1e9 for p in points),
        total=report["trials"]["total"],
    )


def levels_of(report: dict[str, Any], bench: dict[str, Any] | None) -> list[Level]:
    """The probed peak, and the peers of a `bench --json` document where there is one."""
    flops = report["workload"]["flops"]
    threads = report["target"]["threads"]
    cores = "a core" if threads == 1 else f"{threads} cores"
    levels = [Level(f"probed peak of {cores}", report["target"]["peak_gflops"])]
    for name, peer in (bench or {"against": {}})["against"].items():
        if peer.get("run_secs") and name != "default":
            title = {"numpy": "NumPy", "torch": "PyTorch"}.get(name, name)
            levels.append(Level(title, flops / peer["run_secs"] / 1e9))
    return levels


def described(curves: list[Curve], levels: list[Level]) -> str:
    """The figures of a picture in words, which an SVG carries."""
    lines = [
        f"{curve.label}: "
        + ", ".join(f"{g:.1f} from {n}" for n, g in zip(curve.trials, curve.gflops, strict=True))
        for curve in curves
    ]
    lines += [f"{level.label}: {level.gflops:.1f}" for level in levels]
    return "; ".join(lines)


def draw(title: str, curves: list[Curve], levels: list[Level], path: Path) -> None:
    """Write the picture; the kind of file is told by its name (`.svg`, `.png`)."""
    import matplotlib as mpl

    mpl.use("Agg")
    # Ids in an SVG are random and it is dated, unless told otherwise.
    mpl.rcParams["svg.hashsalt"] = "tilewright"
    mpl.rcParams["font.size"] = 10
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 3.8), layout="constrained")
    last = max(curve.total for curve in curves)
    for curve, colour in zip(curves, COLOURS, strict=False):
        ends = (*curve.trials, curve.total)
        values = (*curve.gflops, curve.gflops[-1])
        axes.step(ends, values, where="post", color=colour, linewidth=2, label=curve.label)
        axes.plot(curve.trials, curve.gflops, "o", color=colour, markersize=4)
    _draw_levels(axes, levels, last)
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.set_xlabel("candidates compiled, verified and timed")
    axes.set_ylabel("best so far, GFLOP/s")
    axes.set_xlim(0, last * 1.02)
    axes.set_ylim(0, max(level.gflops for level in levels) * 1.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)
    about = {"Date": None, "Description": described(curves, levels)}
    figure.savefig(path, dpi=144, metadata=about if path.suffix == ".svg" else None)
    plt.close(figure)


def _draw_levels(axes: Axes, levels: list[Level], last: int) -> None:
    """Lines across, named at the right edge: the greatest above its line, the others below."""
    for n, level in enumerate(sorted(levels, key=lambda one: -one.gflops)):
        axes.axhline(level.gflops, color=GREY, linewidth=1, linestyle="--" if n else "-")
        text = f" {level.label}\n {level.gflops:.0f}"
        where = "bottom" if n == 0 else "top"
        axes.text(last * 1.02, level.gflops, text, color=GREY, va=where, fontsize=9)


def read(
    reports: list[Path], bench: Path | None
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """The documents of `tune --json`, and the one of `bench --json` if there is one."""
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in reports]
    return documents, json.loads(bench.read_text(encoding="utf-8")) if bench else None


def main(arguments: list[str] | None = None) -> int:
    """Draw; exit code 2 for a report that cannot be drawn."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("reports", nargs="+", type=Path, help="documents of `tune --json`")
    parser.add_argument("--bench", type=Path, help="a document of `bench --json` on the same work")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, help="the picture, .svg or .png"
    )
    given = parser.parse_args(arguments)
    reports, bench = read(given.reports, given.bench)
    if len({report["workload"]["key"] for report in reports}) != 1:
        parser.error("the reports are of different workloads")
    first = reports[0]
    title = f"{first['workload']['name']}\non {first['target']['cpu']}"
    try:
        curves = [curve_of(report) for report in reports]
    except ValueError as error:
        parser.error(str(error))
    draw(title, curves, levels_of(first, bench), given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
