"""The operator suite as rooflines: one row of panels a group of families, one column a thread
count. What memory bounds is drawn as bandwidth over size, where a roofline would be one point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.suite.families import FAMILIES
from benchmarks.suite.results import ResultsFile
from benchmarks.suite.roofline import INK, SOFT, draw_roofs, gflops, intensity, turn_labels

_LEGEND_LETTERS = 80
"""What two columns of a legend may have beside each other: a wider one would narrow its panel."""

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")


@dataclass(frozen=True, slots=True)
class Group:
    """Families that share a panel; `bandwidth`: drawn in GB/s over bytes."""

    title: str
    families: tuple[str, ...]
    bandwidth: bool = False


GROUPS = (
    Group("matrix products", ("gemm", "gemm_layouts", "gemm_odd", "gemm_small", "gemm_shapes")),
    Group("convolutions", ("conv", "conv_other", "conv_transpose", "conv_transpose_rest")),
    Group("depthwise, fused", ("depthwise", "fused")),
    Group("memory", ("gemv", "rows", "elementwise"), bandwidth=True),
)


def plot_families(results: ResultsFile, path: Path) -> None:
    """Write the picture, unless nothing of the suite was measured."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = list(results.matching("suite/").values())
    counts = sorted({row.data["threads"] for row in rows})
    groups = [g for g in GROUPS if any(r.data["family"] in g.families for r in rows)]
    if not groups:
        return
    figure, axes = plt.subplots(
        len(groups), len(counts), figsize=(7.4 * len(counts), 5.2 * len(groups)), squeeze=False
    )
    for group, line in zip(groups, axes, strict=True):
        for threads, axis in zip(counts, line, strict=True):
            chosen = [
                row for row in rows
                if row.data["threads"] == threads and row.data["family"] in group.families
            ]  # fmt: skip
            if not chosen:
                axis.set_visible(False)
                continue
            machine = results.sessions[chosen[-1].session]
            draw = _draw_bandwidth if group.bandwidth else _draw_roofline
            draw(axis, group, [row.data for row in chosen], machine, threads)
            _mark(axis)
            many = "one thread" if threads == 1 else f"{threads} threads"
            axis.set_title(f"{group.title}, {many}, {machine['cpu']}", loc="left", fontsize=11,
                           color=INK)  # fmt: skip
    figure.tight_layout()
    for axis in axes.flat:
        turn_labels(axis)
    figure.savefig(path, dpi=110)
    plt.close(figure)


Point = tuple[float, float, float | None]
"""x, our y, and the better library's y."""


def _draw_roofline(
    axis: Any, group: Group, rows: Sequence[dict[str, Any]], machine: dict[str, Any], threads: int
) -> None:
    points = {
        family: [
            (intensity(d), gflops(d, "kernel"), gflops(d, _peer(d)) if _peer(d) else None)
            for d in rows
            if d["family"] == family
        ]
        for family in group.families
    }
    _draw_points(axis, points)
    every = [point for found in points.values() for point in found]
    speeds = [y for _, *both in every for y in both if y is not None]
    reached = [x for x, _, _ in every]
    lowest = min(speeds) / 1.3
    draw_roofs(axis, machine, threads, min(reached) / 2, max(reached) * 2, lowest)
    axis.set_ylim(lowest, machine["peak_gflops"][threads - 1] * 1.3)
    axis.set_ylabel("GFLOP/s", color=INK)


def _draw_bandwidth(
    axis: Any, group: Group, rows: Sequence[dict[str, Any]], machine: dict[str, Any], threads: int
) -> None:
    def speed(data: dict[str, Any], side: str) -> float:
        return float(_bytes(data) / data["race"][side]["run_secs"] / 1e9)

    points = {
        family: [
            (_bytes(d) / 1e6, speed(d, "kernel"), speed(d, _peer(d)) if _peer(d) else None)
            for d in rows
            if d["family"] == family
        ]
        for family in group.families
    }
    _draw_points(axis, points)
    everything = [x for family in points.values() for x, _, _ in family]
    left, right = min(everything) / 1.5, max(everything) * 1.5
    for level, values in machine["bandwidth_gbs"].items():
        bandwidth = values[min(threads, len(values)) - 1]
        axis.plot([left, right], [bandwidth, bandwidth], color=SOFT, linewidth=1, zorder=0)
        axis.annotate(f"{level} {bandwidth:.0f} GB/s", (right, bandwidth), fontsize=8, color=SOFT,
                      xytext=(-4, 3), textcoords="offset points", ha="right")  # fmt: skip
    axis.set(xscale="log", yscale="log", xlim=(left, right))
    axis.set_xlabel("megabytes (every input and output once)", color=INK)
    axis.set_ylabel("GB/s", color=INK)
    axis.grid(True, which="major", color="#eeeeee", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _mark(axis: Any) -> None:
    """Ticks at 1, 2, 5: a panel may span less than a power of ten."""
    from matplotlib.ticker import LogLocator

    for direction in (axis.xaxis, axis.yaxis):
        direction.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        direction.set_major_formatter("{x:g}")
        direction.set_minor_formatter("")


def _draw_points(axis: Any, points: dict[str, list[Point]]) -> None:
    """A dot a case, and a line to a small square for the better library."""
    for (family, found), colour in zip(points.items(), COLOURS, strict=False):
        for x, ours, theirs in found:
            if theirs is not None:
                axis.plot([x, x], [theirs, ours], color=colour, linewidth=0.7, alpha=0.5, zorder=1)
                axis.scatter([x], [theirs], s=12, marker="s", color=SOFT, zorder=2)
        if found:
            axis.scatter([p[0] for p in found], [p[1] for p in found], s=22, color=colour,
                         label=FAMILIES[family].title, linewidths=0.5, edgecolors="white",
                         zorder=3)  # fmt: skip
    axis.scatter([], [], s=12, marker="s", color=SOFT, label="better of NumPy and PyTorch")
    # Below the panel: wherever else it goes, it hides dots or makes room by squeezing them.
    lengths = [len(label) for label in axis.get_legend_handles_labels()[1]]
    half = -(-len(lengths) // 2)  # columns are filled one after the other
    beside = max(lengths[:half]) + max(lengths[half:], default=0) <= _LEGEND_LETTERS
    axis.legend(loc="upper left", bbox_to_anchor=(-0.02, -0.13), ncols=2 if beside else 1,
                frameon=False, fontsize=8)  # fmt: skip


def _peer(data: dict[str, Any]) -> str:
    return str(data.get("against_best_peer", {}).get("peer", ""))


def _bytes(data: dict[str, Any]) -> float:
    return float(data["tune"]["workload"]["min_bytes"])
