"""The tables of the published pages, each made from the committed results in `published/` alone."""

from __future__ import annotations

import io
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import search_comparison, transfer
from benchmarks.check_share import summarise
from benchmarks.commits.summary import final_bests, geomean_interval, too_slow
from benchmarks.suite.families import FAMILIES, SPEEDUP, WORST_SPEEDUP
from benchmarks.suite.family_goals import (
    FamilyFigures,
    family_figures,
    is_below,
    judge_suite,
    label,
)
from benchmarks.suite.family_report import (
    case_sections,
    compiled_table,
    short_table,
    under_table,
    ways_table,
)
from benchmarks.suite.goals import geomean
from benchmarks.suite.results import Result, ResultsFile
from examples.demo import transcript
from tilewright.peers.library_versions import described
from tilewright.service.cli.render import tune_summary

NOT_MEASURED = "Not measured."
TRANSCRIPT_WIDTH = 110
_RIGHT = ("right_kernels", "of_them_checked_in_full", "false_alarms")


def tables(published: Path) -> dict[str, str]:
    """Every table by name, as it stands between its markers."""
    results = ResultsFile(published / "suite.jsonl")
    suite = results.matching("suite/")
    made: dict[str, Callable[[], str]] = {
        "machine": lambda: _machine(results),
        "summary": lambda: _summary(family_figures(results)),
        "families": lambda: _families(family_figures(results)),
        "products": lambda: _judgements(results, "products 512"),
        "cases": lambda: "\n\n".join(case_sections(results, level=2)) or NOT_MEASURED,
        "short": lambda: short_table(suite),
        "compiled": lambda: compiled_table(suite),
        "ways": lambda: ways_table(suite),
        "under": lambda: _under(suite),
        "constants": lambda: _constants(results.matching("constants/")),
        "candidates": lambda: _candidates(results.rows),
        "planted": lambda: _planted(published / "planted.jsonl"),
        "planted-unusual": lambda: _planted(published / "planted_unusual.jsonl"),
        "check-share": lambda: _check_share(published / "check_share.jsonl"),
        "wall-clock": lambda: _wall_clock(published / "wall_clock.jsonl"),
        "commits": lambda: _commits(sorted(published.glob("commits*.jsonl"))),
        "search": lambda: _search(published.parent / "search_comparison.jsonl"),
        "transfer": lambda: _transfer(published.parent / "transfer.jsonl"),
        "demo": lambda: _demo(published / "demo.json"),
        "tune": lambda: _tune(published / "tuning_curve" / "annealing.json"),
    }
    return {name: f"\n{make()}\n\n" for name, make in made.items()}


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|---" * len(header) + "|", *lines[1:]])


def _machine(results: ResultsFile) -> str:
    """A line for each machine and commit: sessions that differ in their probes alone are one."""
    probed: dict[tuple[str, str], list[dict[str, Any]]] = {}
    named = ""
    for session, machine in results.sessions.items():
        threads = " / ".join(map(str, range(1, machine["cores"] + 1)))
        removed = ", ".join(f"`{k}={v}`" for k, v in machine["removed_variables"].items())
        libraries = machine["libraries"]
        one = [libraries[f"{name} 1t"] for name in ("numpy", "torch") if f"{name} 1t" in libraries]
        named = "; ".join(map(described, one)) or named  # none where no library was raced anew
        before = (
            f"- {machine['model']} ({machine['cpu']}, {machine['cores']} cores,"
            f" {machine['vector_bits']}-bit vectors), probed"
        )
        after = (
            f" on {threads} threads; Python {machine['python']}; {machine['compiler']};"
            f" commit {machine['commit']}{_tuned_before(results, session, machine['commit'])}."
            f" {named}. Removed from the environment: {removed or 'nothing'}."
        )
        probed.setdefault((before, after), []).append({**machine, "day": session[:10]})
    return "\n".join(
        f"{before} f32 peak {_range([m['peak_gflops'] for m in machines])} GFLOP/s and memory"
        f" {_range([m['bandwidth_gbs']['memory'] for m in machines])} GB/s{after}"
        f" Measured {_days(m['day'] for m in machines)}."
        for (before, after), machines in probed.items()
    )


def _days(days: Iterable[str]) -> str:
    found = sorted(set(days))
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def _range(by_session: list[list[float]]) -> str:
    """The least and the most that sessions probed, for each number of threads."""
    ends = [(f"{min(each):.0f}", f"{max(each):.0f}") for each in zip(*by_session, strict=True)]
    return " / ".join(low if low == high else f"{low} to {high}" for low, high in ends)


def _tuned_before(results: ResultsFile, session: str, commit: str) -> str:
    """What to say of rows whose kernels were tuned in an earlier session and raced in this one."""
    raced = [row.data.get("tuned_at") for row in results.rows.values() if row.session == session]
    commits = sorted({tuned for tuned in raced if tuned and tuned != commit})
    return f" (kernels tuned at {', '.join(commits)})" if commits else ""


def _by_family(figures: list[FamilyFigures]) -> dict[str, dict[str, FamilyFigures]]:
    found: dict[str, dict[str, FamilyFigures]] = {}
    for each in figures:
        found.setdefault(each.family.key, {})[each.which] = each
    return found


def _speedups(by_count: Mapping[str, FamilyFigures]) -> list[str]:
    """The geometric means on one thread and on two."""
    counts = [by_count.get(which) for which in ("1", "2")]
    return [f"{c.speedup.geomean:.2f}x" if c and c.speedup else "-" for c in counts]


def _summary(figures: list[FamilyFigures]) -> str:
    """Speed-ups alone, for the first page."""
    rows = []
    for key, by_count in _by_family(figures).items():
        both = by_count["1 and 2"]
        slowest = f"{both.speedup.worst:.2f}x" if both.speedup else "-"
        rows.append([FAMILIES[key].title, str(len(both.rows)), *_speedups(by_count), slowest])
    header = ["computation", "measurements", "1 thread", "2 threads", "slowest measurement"]
    return markdown_table(header, rows)


def _families(figures: list[FamilyFigures]) -> str:
    rows = []
    for key, by_count in _by_family(figures).items():
        both = by_count["1 and 2"]
        counts = [by_count.get(which) for which in ("1", "2")]
        words = {True: "yes", False: "**no**", None: "-"}
        rows.append(
            [
                FAMILIES[key].title,
                str(len(both.rows)),
                " / ".join(_speedups(by_count)),
                f"{both.speedup.worst:.2f}x {both.speedup.where}" if both.speedup else "-",
                words[both.speedup_met],
                " / ".join(
                    f"{c.of_bound.geomean:.2f}" if c and c.of_bound else "-" for c in counts
                ),
                f"{both.of_bound.worst:.2f} {both.of_bound.where}" if both.of_bound else "-",
            ]
        )
    header = [
        "family", "rows", "speed-up, 1 / 2 threads", "slowest row",
        f"mean >= {SPEEDUP:.2f}x and no row below {WORST_SPEEDUP:.2f}x",
        "fraction of the bound, 1 / 2 threads", "lowest row",
    ]  # fmt: skip
    return markdown_table(header, rows)


def _judgements(results: ResultsFile, word: str) -> str:
    rows = [
        [each.what, each.to_reach, each.measured, "yes" if each.met else "**no**"]
        for each in judge_suite(results, {})
        if word in each.what
    ]
    return markdown_table(["what", "goal", "measured", "met?"], rows)


def _under(rows: Mapping[str, Result]) -> str:
    table = under_table(rows)
    if not table:
        return f"None of {len(rows)} rows."
    below = [label(row) for row in rows.values() if is_below(row)]
    said = (
        f"Of {len(rows)} rows, {len(below)} are below {WORST_SPEEDUP:.2f}x by more than their"
        " measured spread"
    )
    return f"{said}.\n\n{table}"


def _constants(rows: Mapping[str, Result]) -> str:
    if not rows:
        return NOT_MEASURED
    lines = []
    for threads in sorted({row.data["threads"] for row in rows.values()}):
        of_count = [r for r in rows.values() if r.data["threads"] == threads]
        speedups = {
            label(r): r.data["against_best_peer"]["median"]
            for r in of_count
            if "against_best_peer" in r.data
        }
        slowest = min(speedups, key=speedups.__getitem__)
        bound = geomean(r.data["of_bound_beside"] for r in of_count)
        lines.append(
            [
                str(threads), str(len(of_count)), f"{geomean(speedups.values()):.2f}x",
                f"{speedups[slowest]:.2f}x {slowest}", f"{bound:.2f}",
            ]
        )  # fmt: skip
    header = ["threads", "rows", "speed-up, weights packed in the library too", "slowest row",
              "fraction of the bound"]  # fmt: skip
    return markdown_table(header, lines)


def _candidates(rows: Mapping[str, Result]) -> str:
    """All candidates are right as far as anyone knows: what is not `ok` was refused or failed."""
    counts: Counter[str] = Counter()
    for row in rows.values():
        counts.update(row.data["tune"]["trials"].get("by_status", {}))
    if not counts:
        return NOT_MEASURED
    statuses = ", ".join(f"{n:,} {status}" for status, n in counts.most_common())
    return (
        f"{counts.total():,} candidates in {len(rows)} rows, each verified before it was timed:"
        f" {statuses}. The fastest of each row passed the full check in a fresh process."
    )


def _json_lines(path: Path) -> list[dict[str, Any]]:
    """The documents of a file of JSON lines; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]


def _planted(path: Path) -> str:
    """Sums over the kernels that mistakes were planted in, and right kernels that were checked."""
    lines = _json_lines(path)
    if not lines:
        return NOT_MEASURED
    counts: Counter[str] = Counter()
    for each in lines:
        counts.update(each.get("counts", {}))
    ends = [each for each in lines if "summary" in each]
    right = {key: sum(e["summary"][key] for e in ends) for key in _RIGHT}
    wrong = counts["quick"] + counts["full"] + counts["missed"]
    commits = ", ".join(dict.fromkeys(each["commit"] for each in ends))
    rows = [
        ["kernels with injected faults", f"{sum('counts' in each for each in lines):,}"],
        ["injected faults", f"{counts.total():,}"],
        ["no effect: the object file is unchanged", f"{counts['same']:,}"],
        ["no effect found: results are correct for all tested inputs", f"{counts['equivalent']:,}"],
        ["detected by the quick check", f"{counts['quick']:,}"],
        ["detected by the full check", f"{counts['full']:,}"],
        ["not detected", f"{counts['missed']:,}"],
        ["detected fraction of the wrong kernels", f"{(wrong - counts['missed']) / wrong:.2%}"],
        [
            "correct kernels checked (with the full check)",
            f"{right['right_kernels']:,} ({right['of_them_checked_in_full']:,})",
        ],
        ["correct kernels rejected", f"{right['false_alarms']:,}"],
    ]
    return f"{markdown_table(['quantity', 'count'], rows)}\n\nAt commit {commits}."


def _check_share(path: Path) -> str:
    rows = [row for row in _json_lines(path) if row["wall_secs_by_phase"]]
    if not rows:
        return NOT_MEASURED
    phases = dict.fromkeys(name for row in rows for name in row["wall_secs_by_phase"])
    lines = []
    for name in phases:
        secs = [row["wall_secs_by_phase"].get(name, 0.0) for row in rows]
        shares = [s / row["wall_secs"] for s, row in zip(secs, rows, strict=True)]
        cells = [f"{statistics.median(secs):.2f} s", f"{statistics.median(shares):.0%}"]
        lines.append([f"`{name}`", *cells, f"{max(secs):.1f} s"])
    walls = [row["wall_secs"] for row in rows]
    lines.append(["all", f"{statistics.median(walls):.2f} s", "100%", f"{max(walls):.1f} s"])
    table = markdown_table(["phase", "median", "median share", "longest"], lines)
    return f"{summarise(path)}.\n\n{table}"


def _wall_clock(path: Path) -> str:
    rows = _json_lines(path)
    if not rows:
        return NOT_MEASURED
    counts: Counter[str] = Counter(_ending(row) for row in rows)
    lines = [[ending, str(count)] for ending, count in counts.most_common()]
    longest = max(row["wall_secs"] for row in rows)
    return (
        f"{len(rows)} workloads, one `tilewright tune --seconds 5` each; the longest took"
        f" {longest:.1f} s, including the start of the process.\n\n"
        f"{markdown_table(['how the command ended', 'workloads'], lines)}"
    )


def _ending(row: Mapping[str, Any]) -> str:
    """The reason a command ended for, without what differs from workload to workload."""
    reason = str(row["reason"])
    if row["exit_code"] == 2:
        return f"refused at once as `{reason.partition(':')[0]}`, with a reason"
    if not row["has_best"]:
        return "no verified schedule yet; the message says how many seconds would do"
    return reason.partition(":")[0]


def _commits(paths: Sequence[Path]) -> str:
    """A row for each comparison that has a race and number of threads."""
    lines = []
    for path in paths:
        results = ResultsFile(path)
        ratios = final_bests(results)
        if not ratios:
            continue
        machine = list(results.sessions.values())[-1]
        said = [f"{machine['commits'][side][:7]}" for side in ("old", "new")]
        for threads in sorted({place.threads for place in ratios}):
            own = {p: r for p, r in ratios.items() if p.threads == threads}
            values = [each.median for each in own.values()]
            low, high = geomean_interval(values)
            cells = [
                *said, machine["model"], str(threads), str(len(own)),
                str(sum(each.equal for each in own.values())),
                f"{geomean(values):.3f} [{low:.3f}, {high:.3f}]",
                f"{min(values):.3f}", str(len(too_slow(own))),
            ]  # fmt: skip
            lines.append(cells)
    header = [
        "old commit", "new commit", "machine", "threads", "rows", "same object file",
        "old time / new time, 95 % interval", "lowest row", "rows below 0.95",
    ]  # fmt: skip
    return markdown_table(header, lines) if lines else NOT_MEASURED


def _transfer(path: Path) -> str:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return transfer.table(lines) if lines else NOT_MEASURED


def _search(path: Path) -> str:
    lines = _json_lines(path)
    return search_comparison.tables(lines) if lines else NOT_MEASURED


def _demo(path: Path) -> str:
    if not path.exists():
        return NOT_MEASURED
    return f"```text\n{transcript(json.loads(path.read_text(encoding='utf-8')))}\n```"


def _tune(path: Path) -> str:
    """What `tilewright tune` prints of a report that `tune --json` wrote."""
    if not path.exists():
        return NOT_MEASURED
    report = json.loads(path.read_text(encoding="utf-8"))
    name = report["workload"]["name"]
    console = Console(
        file=io.StringIO(), width=TRANSCRIPT_WIDTH, highlight=False, color_system=None
    )
    with console.capture() as captured:
        console.print(tune_summary(report, again=name))
    lines = [line.rstrip() for line in captured.get().strip("\n").splitlines()]
    return "\n".join(["```console", f"$ tilewright tune {name}", *lines, "```"])
