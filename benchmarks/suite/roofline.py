"""Rooflines: speed over operations a byte of traffic, beside the probed roofs."""

from __future__ import annotations

from math import atan2, degrees
from pathlib import Path
from typing import Any

from benchmarks.suite.results import ResultsFile

SIDES = {"kernel": "Tilewright", "numpy": "NumPy", "torch": "PyTorch"}
COLOURS = {"kernel": "#D55E00", "numpy": "#0072B2", "torch": "#009E73"}
MARKERS = {"kernel": "o", "numpy": "s", "torch": "^"}
INK, SOFT = "#222222", "#8a8a8a"
ALONG = "along a roof"


def plot(results: ResultsFile, path: Path) -> None:
    """A roofline for each thread count: what was reached, by operations a byte of traffic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    rows = [
        *results.matching("gemm/").values(),
        *results.matching("ops/").values(),
        *results.matching("expressions/").values(),
    ]
    counts = sorted({row.data["threads"] for row in rows})
    if not counts:
        return
    figure, axes = plt.subplots(
        1, len(counts), figsize=(7.2 * len(counts), 5.4), squeeze=False, sharey=True
    )
    for axis, threads in zip(axes[0], counts, strict=True):
        chosen = [row for row in rows if row.data["threads"] == threads]
        machine = results.sessions[chosen[-1].session]
        _draw_points(axis, [row.data for row in chosen])
        reached = [intensity(row.data) for row in chosen]
        draw_roofs(axis, machine, threads, min(*reached, 0.1) / 1.5, max(*reached, 200.0) * 1.5)
        axis.set_title(
            f"{machine['cpu']}, {'one thread' if threads == 1 else f'{threads} threads'}",
            loc="left", fontsize=11, color=INK,
        )  # fmt: skip
    axes[0][0].set_ylabel("GFLOP/s", color=INK)
    axes[0][0].legend(loc="lower right", frameon=False, fontsize=9)
    figure.tight_layout()
    for axis in axes[0]:
        turn_labels(axis)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def turn_labels(axis: Any) -> None:
    """Let the labels of bandwidth roofs run along them, now that the scales are final."""
    low, high = axis.transData.transform([(1.0, 1.0), (10.0, 10.0)])
    angle = degrees(atan2(high[1] - low[1], high[0] - low[0]))
    for label in axis.texts:
        if label.get_gid() == ALONG:
            label.set_rotation(angle)


def intensity(data: dict[str, Any]) -> float:
    """Operations a byte, every input and output moved once."""
    workload = data["tune"]["workload"]
    return float(workload["flops"]) / float(workload["min_bytes"])


def gflops(data: dict[str, Any], side: str) -> float:
    """Speed of a side, by the workload's own count of operations."""
    flops = float(data["tune"]["workload"]["flops"])
    return flops / float(data["race"][side]["run_secs"]) / 1e9


def _draw_points(axis: Any, rows: list[dict[str, Any]]) -> None:
    """A dot a side, and a line from the better peer to ours."""
    for data in rows:
        if "against_best_peer" in data:
            x, peer = intensity(data), data["against_best_peer"]["peer"]
            ends = [gflops(data, peer), gflops(data, "kernel")]
            axis.plot([x, x], ends, color=SOFT, linewidth=0.8, zorder=1)
    for side, name in SIDES.items():
        points = [
            (intensity(d), gflops(d, side)) for d in rows if "run_secs" in d["race"].get(side, {})
        ]
        if points:
            axis.scatter(
                *zip(*points, strict=True), s=34 if side == "kernel" else 22, label=name,
                color=COLOURS[side], marker=MARKERS[side], linewidths=0.5, edgecolors="white",
                zorder=3 if side == "kernel" else 2,
            )  # fmt: skip


def draw_roofs(
    axis: Any, machine: dict[str, Any], threads: int, left: float, right: float,
    lowest: float = 0.0,
) -> None:  # fmt: skip
    """The probed peak, and the bandwidth of each level up to it, from operations a byte of `left`
    to `right`; nothing below `lowest` GFLOP/s."""
    at = min(threads, len(machine["peak_gflops"])) - 1
    peak = machine["peak_gflops"][at]
    for level, values in machine["bandwidth_gbs"].items():
        bandwidth = values[at]
        ridge, start = peak / bandwidth, max(left, lowest / bandwidth)
        if ridge <= start * 1.2:
            continue
        axis.plot([start, ridge], [start * bandwidth, peak], color=SOFT, linewidth=1, zorder=0)
        axis.text(
            start * 1.1, start * 1.1 * bandwidth * 1.07, f"{level} {bandwidth:.0f} GB/s",
            fontsize=8, color=SOFT, rotation_mode="anchor", gid=ALONG, clip_on=True,
        )  # fmt: skip
    ridge = peak / max(v[at] for v in machine["bandwidth_gbs"].values())
    axis.plot([max(ridge, left), right], [peak, peak], color=INK, linewidth=1.2, zorder=0)
    axis.annotate(
        f"probed peak {peak:.0f} GFLOP/s", (right, peak), fontsize=8, color=INK, ha="right",
        xytext=(-4, 5), textcoords="offset points",
    )  # fmt: skip
    axis.set(xscale="log", yscale="log", xlim=(left, right))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter("")
    axis.set_xlabel("operations a byte (every input and output once)", color=INK)
    axis.grid(True, which="major", color="#eeeeee", linewidth=0.8)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
