"""Results as a Markdown table and a roofline plot: `python -m benchmarks.report [FOLDER]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.suite.family_goals import judge_suite, read_tvm
from benchmarks.suite.family_plot import plot_families
from benchmarks.suite.family_report import constant_sections, shown_secs, suite_sections
from benchmarks.suite.goals import Judgement, geomean, judge
from benchmarks.suite.machine import QUIET_SHARE
from benchmarks.suite.results import Result, ResultsFile
from benchmarks.suite.roofline import plot

TVM_FILE = "tvm.jsonl"


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results"
    results = ResultsFile(folder / "results.jsonl")
    if not results.rows:
        sys.stderr.write(f"{folder} has no results; python -m benchmarks.run measures them\n")
        return 1
    tvm = read_tvm(folder / TVM_FILE)
    judgements = [*judge(results), *judge_suite(results, tvm)]
    text = document(
        results, judgements, [*suite_sections(results, tvm), *constant_sections(results)]
    )
    (folder / "table.md").write_text(text)
    sys.stdout.write(text)
    try:
        plot(results, folder / "roofline.png")
        plot_families(results, folder / "roofline_suite.png")
    except ImportError:
        sys.stderr.write("no plot: pip install 'tilewright[plot]' brings matplotlib\n")
    failed = [row for row in results.rows.values() if row.failed]
    return 1 if failed else 0


def document(results: ResultsFile, judgements: list[Judgement], suite: Sequence[str] = ()) -> str:
    """The report in Markdown; `suite` are the sections of the operator suite."""
    parts = [_machines(results), _goals(results, judgements)]
    for prefix, title in (
        ("gemm/", "Matrix products"),
        ("ops/", "Operators of the library"),
        ("expressions/", "Expressions in no library"),
    ):
        rows = results.matching(prefix)
        if rows:
            parts.append(f"### {title}\n\n{_speed_table(rows)}")
    parts += suite
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
        f"{shown_secs(kernel['run_secs'])} ({shown_secs(kernel['least_secs'])})",
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


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
