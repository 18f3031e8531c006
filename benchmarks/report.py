"""Results as a Markdown table and a roofline plot: `python -m benchmarks.report [FOLDER]`."""

from __future__ import annotations

import sys
from math import atan2, degrees
from pathlib import Path
from typing import Any

from benchmarks.suite.goals import Judgement, geomean, judge
from benchmarks.suite.machine import QUIET_SHARE
from benchmarks.suite.results import Result, ResultsFile

SIDES = {"kernel": "Tilewright", "numpy": "NumPy", "torch": "PyTorch"}
COLOURS = {"kernel": "#D55E00", "numpy": "#0072B2", "torch": "#009E73"}
MARKERS = {"kernel": "o", "numpy": "s", "torch": "^"}
INK, SOFT = "#222222", "#8a8a8a"
ALONG = "along a roof"


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results"
    results = ResultsFile(folder / "results.jsonl")
    if not results.rows:
        sys.stderr.write(f"{folder} has no results; python -m benchmarks.run measures them\n")
        return 1
    judgements = judge(results)
    text = document(results, judgements)
    (folder / "table.md").write_text(text)
    sys.stdout.write(text)
    try:
        plot(results, folder / "roofline.png")
    except ImportError:
        sys.stderr.write("no plot: pip install 'tilewright[plot]' brings matplotlib\n")
    failed = [row for row in results.rows.values() if row.failed]
    return 1 if failed else 0


def document(results: ResultsFile, judgements: list[Judgement]) -> str:
    """The report in Markdown."""
    parts = [_machines(results), _goals(results, judgements)]
    for prefix, title in (
        ("gemm/", "Matrix products"),
        ("ops/", "Operators of the library"),
        ("expressions/", "Expressions in no library"),
    ):
        rows = results.matching(prefix)
        if rows:
            parts.append(f"### {title}\n\n{_speed_table(rows)}")
    failed = [row for row in results.rows.values() if row.failed]
    if failed:
        lines = [f"- {row.key}: {_cell(row.failed or '')}" for row in failed]
        parts.append("### Rows without a figure\n\n" + "\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _machines(results: ResultsFile) -> str:
    used = {row.session for row in results.rows.values()}
    lines = []
    for name, machine in results.sessions.items():
        if name not in used:
            continue
        versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items() if v)
        peaks = " / ".join(f"{peak:.0f}" for peak in machine["peak_gflops"])
        bandwidth = " / ".join(f"{b:.0f}" for b in machine["bandwidth_gbs"]["memory"])
        lines.append(
            f"- {name}: {machine['cpu']} ({machine['model']}, {machine['cores']} cores,"
            f" {machine['vector_bits']}-bit vectors), target {machine['target_key'][:12]};"
            f" probed f32 peak {peaks} GFLOP/s and memory {bandwidth} GB/s by threads;"
            f" Python {machine['python']}, {versions}; {machine['compiler']};"
            f" commit {machine['commit']}"
            + (" **quick run: its figures mean nothing**" if machine.get("quick") else "")
        )
    return "Measured in:\n\n" + "\n".join(lines)


def _goals(results: ResultsFile, judgements: list[Judgement]) -> str:
    lines = ["| what | to reach | measured | met? | conditions |", "|---|---|---|---|---|"]
    words = {True: "yes", False: "**no**", None: "-"}
    for each in judgements:
        cells = (
            each.what,
            each.to_reach,
            each.measured,
            words[each.met],
            _conditions(results, each),
        )
        lines.append("| " + " | ".join(_cell(c) for c in cells) + " |")
    return "\n".join(lines)


def _conditions(results: ResultsFile, judgement: Judgement) -> str:
    """What a reader must know of the machine and the moment."""
    machines = [
        results.sessions[r.session] for r in judgement.rows if r.session in results.sessions
    ]
    if not machines:
        return ""
    notes = []
    if "peak" in judgement.to_reach:
        peaks = sorted({r.data["peak_gflops"] for r in judgement.rows})
        between = f"{peaks[0]:.0f}" if len(peaks) == 1 else f"{peaks[0]:.0f} to {peaks[-1]:.0f}"
        width = "AVX-512" if machines[0]["avx512"] else "no AVX-512 here, for which this is stated"
        notes.append(f"{width}; peak beside the kernel {between} GFLOP/s")
    if "PyTorch" in judgement.to_reach and not machines[0]["versions"].get("torch"):
        notes.append("PyTorch is not installed: against NumPy alone")
    busiest = max(r.busy_share for r in judgement.rows)
    if busiest > QUIET_SHARE:
        notes.append(f"others used up to {busiest:.0%} of a core")
    return "; ".join(notes)


def _speed_table(rows: dict[str, Result]) -> str:
    lines = [
        "| case | threads | time (least) | GFLOP/s | of peak | of bound | NumPy | PyTorch |"
        " against the better | default / best | ms a trial |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_speed_line(row.data) for row in rows.values()]
    found = [r.data["against_best_peer"]["median"] for r in rows.values()
             if "against_best_peer" in r.data]  # fmt: skip
    if found:
        lines.append(f"\nGeomean against the better peer: {geomean(found):.2f}x, least"
                     f" {min(found):.2f}x. Ranges are 95 % bootstrap intervals.")  # fmt: skip
    return "\n".join(lines)


def _speed_line(data: dict[str, Any]) -> str:
    kernel = data["race"]["kernel"]
    best, tuned = data.get("against_best_peer"), data["tune"]
    cells = [
        data["case"],
        str(data["threads"]),
        f"{_time(kernel['run_secs'])} ({_time(kernel['least_secs'])})",
        f"{data['gflops']:.1f}",
        f"{data['of_peak']['median']:.2f}",
        f"{tuned['best']['fraction_of_bound']:.2f} {tuned['best']['bound']}",
        *(_ratio(data["race"].get(peer, {})) for peer in ("numpy", "torch")),
        f"{best['median']:.2f}x ({best['low']:.2f} to {best['high']:.2f})" if best else "-",
        f"{data['default_against_best']:.2f}" if "default_against_best" in data else "-",
        f"{tuned['wall_secs'] / max(tuned['trials']['total'], 1) * 1e3:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def _ratio(side: dict[str, Any]) -> str:
    return f"{side['ratio']['median']:.2f}x" if "ratio" in side else "-"


def _time(secs: float) -> str:
    return f"{secs * 1e6:.3g} us" if secs < 1e-3 else f"{secs * 1e3:.3g} ms"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


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
        _draw_roofs(axis, machine, threads, [intensity(row.data) for row in chosen])
        axis.set_title(
            f"{machine['cpu']}, {'one thread' if threads == 1 else f'{threads} threads'}",
            loc="left", fontsize=11, color=INK,
        )  # fmt: skip
    axes[0][0].set_ylabel("GFLOP/s", color=INK)
    axes[0][0].legend(loc="lower right", frameon=False, fontsize=9)
    figure.tight_layout()
    for axis in axes[0]:
        _turn_labels(axis)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _turn_labels(axis: Any) -> None:
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


def _draw_roofs(axis: Any, machine: dict[str, Any], threads: int, reached: list[float]) -> None:
    """The probed peak, and the bandwidth of each level up to it."""
    at = min(threads, len(machine["peak_gflops"])) - 1
    peak = machine["peak_gflops"][at]
    left, right = min(*reached, 0.1) / 1.5, max(*reached, 200.0) * 1.5
    for level, values in machine["bandwidth_gbs"].items():
        bandwidth = values[at]
        ridge = peak / bandwidth
        if ridge <= left:
            continue
        axis.plot([left, ridge], [left * bandwidth, peak], color=SOFT, linewidth=1, zorder=0)
        axis.text(
            left * 1.1, left * 1.1 * bandwidth * 1.07, f"{level} {bandwidth:.0f} GB/s",
            fontsize=8, color=SOFT, rotation_mode="anchor", gid=ALONG,
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


if __name__ == "__main__":
    sys.exit(main())
