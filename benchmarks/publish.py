"""Publish what was measured: `python -m benchmarks.publish`, and `--check` that texts say the same.

Takes `results/results.jsonl` (and `results/demo.json`, of `examples/demo.py --save`), keeps what
the published tables need in `published/`, which is committed, and writes the tables between markers
in README.md and docs/status.md from it. No figure there is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.suite.families import FAMILIES, SPEEDUP, WORST_SPEEDUP
from benchmarks.suite.family_goals import (
    FamilyFigures,
    family_figures,
    is_below,
    judge_suite,
    label,
)
from benchmarks.suite.family_report import compiled_table, short_table, under_table, ways_table
from benchmarks.suite.goals import geomean
from benchmarks.suite.results import Result, ResultsFile
from examples.demo import transcript
from tilewright.peers.library_versions import described

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PUBLISHED = ROOT / "benchmarks" / "published"
TEXTS = ("README.md", "docs/status.md")
GROUPS = ("suite/", "constants/")
DIGITS = 5

_KEPT = (
    "case", "family", "families", "threads", "gflops", "peak_gflops", "of_peak", "of_bound",
    "of_bound_beside", "prepack", "against_best_peer", "tuned_at",
)  # fmt: skip
_KEPT_OF_A_SIDE = (
    "run_secs", "least_secs", "median_sample_secs", "quartiles_secs", "blocks", "left_out",
    "ratio", "way", "ways_secs", "compiled_secs", "dropped", "dispatch_secs", "rounding",
    "libraries", "missing",
)  # fmt: skip

_RIGHT = ("right_kernels", "of_them_checked_in_full", "false_alarms")

_BLOCK = re.compile(
    r"(?P<start><!-- published: (?P<name>[\w-]+) -->\n)(?P<body>.*?)(?P<end><!-- end -->)",
    re.DOTALL,
)


def main(arguments: list[str] | None = None) -> int:
    """0 if everything is as published, or was made so."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.publish", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--check", action="store_true", help="only say what differs; exit code 1")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where results are")
    options = parser.parse_args(arguments)
    if options.check:
        found = problems()
        sys.stderr.writelines(f"{problem}\n" for problem in found)
        return 1 if found else 0
    keep(options.folder, PUBLISHED)
    blocks = tables(PUBLISHED)
    for name in TEXTS:
        path = ROOT / name
        path.write_text(filled(path.read_text(encoding="utf-8"), blocks), encoding="utf-8")
    return 0


def problems(texts: Mapping[str, str] | None = None, published: Path = PUBLISHED) -> list[str]:
    """What in the texts (by default those of this repository) is not what was published."""
    blocks = tables(published)
    if texts is None:
        texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in TEXTS}
    found = []
    for name, text in texts.items():
        for match in _BLOCK.finditer(text):
            if match["name"] not in blocks:
                found.append(f"{name}: there is no published table {match['name']!r}")
            elif match["body"] != blocks[match["name"]]:
                found.append(
                    f"{name}: the table {match['name']!r} is not what was published;"
                    " python -m benchmarks.publish writes it"
                )
    return found


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """`text` with what is published between its markers."""

    def fill(match: re.Match[str]) -> str:
        return match["start"] + blocks.get(match["name"], match["body"]) + match["end"]

    return _BLOCK.sub(fill, text)


# What is kept.


def keep(results: Path, published: Path) -> None:
    """Write the rows and sessions of `results` that tables need, without what they do not need."""
    published.mkdir(parents=True, exist_ok=True)
    found = ResultsFile(results / "results.jsonl")
    rows = [r for r in found.rows.values() if r.key.startswith(GROUPS) and not r.failed]
    if rows:
        (published / "suite.jsonl").write_text("".join(f"{line}\n" for line in _lines(found, rows)))
    demo = results / "demo.json"
    if demo.exists():
        document = _rounded(json.loads(demo.read_text()))
        (published / "demo.json").write_text(json.dumps(document, indent=1) + "\n")


def _lines(found: ResultsFile, rows: list[Result]) -> Iterator[str]:
    used = dict.fromkeys(row.session for row in rows)
    told: dict[str, dict[str, Any]] = {}
    for session in used:
        told[session] = _libraries([row for row in rows if row.session == session])
        machine = {**found.sessions[session], "libraries": told[session]}
        yield json.dumps({"session": session, "machine": _rounded(machine)})
    for row in rows:
        data = _slim(row.data, told[row.session])
        yield json.dumps(
            {
                "key": row.key, "at": row.at, "session": row.session,
                "busy_share": round(row.busy_share, 3), "data": _rounded(data),
            }
        )  # fmt: skip


def _libraries(rows: list[Result]) -> dict[str, Any]:
    """What each library said first in a session, by side and threads; rows keep what differs."""
    found: dict[str, Any] = {}
    for row in rows:
        for name, side in row.data["race"].items():
            if "libraries" in side:
                found.setdefault(f"{name} {row.data['threads']}t", side["libraries"])
    return found


def _slim(data: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    race = {}
    for name, side in data["race"].items():
        kept = {key: side[key] for key in _KEPT_OF_A_SIDE if side.get(key) not in (None, {})}
        if kept.get("libraries") == told.get(f"{name} {data['threads']}t"):
            kept.pop("libraries", None)
        race[name] = kept
    tune = data["tune"]
    return {
        **{key: data[key] for key in _KEPT if key in data},
        "bound": {
            key: data["bound"][key]
            for key in ("binds", "secs", "beaten_by")
            if key in data["bound"]
        },
        "race": race,
        "tune": {
            "workload": {key: tune["workload"][key] for key in ("key", "flops", "min_bytes")},
            "trials": {"total": tune["trials"]["total"], **_by_status(tune["trials"])},
            "wall_secs": tune["wall_secs"],
        },
    }


def _by_status(trials: Mapping[str, Any]) -> dict[str, dict[str, int]]:
    found = {status: n for status, n in trials.get("by_status", {}).items() if n}
    return {"by_status": found} if found else {}


def _rounded(value: Any) -> Any:
    """The same with floats of DIGITS digits: more is noise."""
    match value:
        case float():
            return float(f"{value:.{DIGITS}g}")
        case dict():
            return {key: _rounded(each) for key, each in value.items()}
        case list():
            return [_rounded(each) for each in value]
        case _:
            return value


# What is shown.


def tables(published: Path) -> dict[str, str]:
    """Every table by name, as it stands between its markers."""
    results = ResultsFile(published / "suite.jsonl")
    made: dict[str, Callable[[], str]] = {
        "machine": lambda: _machine(results),
        "families": lambda: _families(family_figures(results)),
        "products": lambda: _judgements(results, "products 512"),
        "short": lambda: short_table(results.matching("suite/")),
        "compiled": lambda: compiled_table(results.matching("suite/")),
        "ways": lambda: ways_table(results.matching("suite/")),
        "under": lambda: _under(results.matching("suite/")),
        "constants": lambda: _constants(results.matching("constants/")),
        "candidates": lambda: _candidates(results.rows),
        "planted": lambda: _planted(published / "planted.jsonl"),
        "demo": lambda: _demo(published / "demo.json"),
    }
    return {name: f"\n{make()}\n\n" for name, make in made.items()}


def _machine(results: ResultsFile) -> str:
    """A line for each machine and commit: sessions that differ in their probes alone are one."""
    probed: dict[tuple[str, str], list[dict[str, Any]]] = {}
    named = ""
    for session, machine in results.sessions.items():
        removed = ", ".join(f"`{k}={v}`" for k, v in machine["removed_variables"].items())
        libraries = machine["libraries"]
        one = [libraries[f"{name} 1t"] for name in ("numpy", "torch") if f"{name} 1t" in libraries]
        named = "; ".join(map(described, one)) or named  # none where no library was raced anew
        before = (
            f"- {machine['model']} ({machine['cpu']}, {machine['cores']} cores,"
            f" {machine['vector_bits']}-bit vectors), probed"
        )
        after = (
            f" by threads; Python {machine['python']}; {machine['compiler']};"
            f" commit {machine['commit']}{_tuned_before(results, session, machine['commit'])}."
            f" {named}. Removed from the environment: {removed or 'nothing'}."
        )
        probed.setdefault((before, after), []).append(machine)
    return "\n".join(
        f"{before} f32 peak {_range([m['peak_gflops'] for m in machines])} GFLOP/s and memory"
        f" {_range([m['bandwidth_gbs']['memory'] for m in machines])} GB/s{after}"
        for (before, after), machines in probed.items()
    )


def _range(by_session: list[list[float]]) -> str:
    """The least and the most that sessions probed, for each number of threads."""
    ends = [(f"{min(each):.0f}", f"{max(each):.0f}") for each in zip(*by_session, strict=True)]
    return " / ".join(low if low == high else f"{low} to {high}" for low, high in ends)


def _tuned_before(results: ResultsFile, session: str, commit: str) -> str:
    """What to say of rows whose kernels were tuned in an earlier session and raced in this one."""
    raced = [row.data.get("tuned_at") for row in results.rows.values() if row.session == session]
    commits = sorted({tuned for tuned in raced if tuned and tuned != commit})
    return f" (kernels tuned at {', '.join(commits)})" if commits else ""


def _families(figures: list[FamilyFigures]) -> str:
    by_family: dict[str, dict[str, FamilyFigures]] = {}
    for each in figures:
        by_family.setdefault(each.family.key, {})[each.which] = each
    lines = [
        "| family | rows | better of NumPy and PyTorch, 1 / 2 threads | worst |"
        f" > {SPEEDUP:.2f}x, none under {WORST_SPEEDUP:.2f}x |"
        " of the bound, 1 / 2 threads | worst |",
        "|---|---|---|---|---|---|---|",
    ]
    for key, by_count in by_family.items():
        both = by_count["1 and 2"]
        counts = [by_count.get(which) for which in ("1", "2")]
        words = {True: "yes", False: "**no**", None: "-"}
        cells = [
            FAMILIES[key].title,
            str(len(both.rows)),
            " / ".join(f"{c.speedup.geomean:.2f}x" if c and c.speedup else "-" for c in counts),
            f"{both.speedup.worst:.2f}x {both.speedup.where}" if both.speedup else "-",
            words[both.speedup_met],
            " / ".join(f"{c.of_bound.geomean:.2f}" if c and c.of_bound else "-" for c in counts),
            f"{both.of_bound.worst:.2f} {both.of_bound.where}" if both.of_bound else "-",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _judgements(results: ResultsFile, word: str) -> str:
    lines = ["| what | to reach | measured | met? |", "|---|---|---|---|"]
    for each in judge_suite(results, {}):
        if word in each.what:
            met = "yes" if each.met else "**no**"
            lines.append(f"| {each.what} | {each.to_reach} | {each.measured} | {met} |")
    return "\n".join(lines)


def _under(rows: Mapping[str, Result]) -> str:
    table = under_table(rows)
    if not table:
        return f"None of {len(rows)} rows."
    below = [label(row) for row in rows.values() if is_below(row)]
    said = (
        f"Of {len(rows)} rows, {len(below)} are under {WORST_SPEEDUP:.2f}x outside of their spread"
    )
    return f"{said}.\n\n{table}"


def _constants(rows: Mapping[str, Result]) -> str:
    if not rows:
        return "Not measured."
    lines = [
        "| threads | rows | better of NumPy and PyTorch, weights packed there too | worst |"
        " of the bound |",
        "|---|---|---|---|---|",
    ]
    for threads in sorted({row.data["threads"] for row in rows.values()}):
        of_count = [r for r in rows.values() if r.data["threads"] == threads]
        speedups = {
            label(r): r.data["against_best_peer"]["median"]
            for r in of_count
            if "against_best_peer" in r.data
        }
        worst = min(speedups, key=speedups.__getitem__)
        bound = geomean(r.data["of_bound_beside"] for r in of_count)
        lines.append(
            f"| {threads} | {len(of_count)} | {geomean(speedups.values()):.2f}x |"
            f" {speedups[worst]:.2f}x {worst} | {bound:.2f} |"
        )
    return "\n".join(lines)


def _candidates(rows: Mapping[str, Result]) -> str:
    """All candidates are right as far as anyone knows: what is not `ok` was refused or failed."""
    counts: Counter[str] = Counter()
    for row in rows.values():
        counts.update(row.data["tune"]["trials"].get("by_status", {}))
    if not counts:
        return "Not measured."
    statuses = ", ".join(f"{n:,} {status}" for status, n in counts.most_common())
    return (
        f"{counts.total():,} candidates in {len(rows)} rows, each verified before it was timed:"
        f" {statuses}. The fastest of each row passed the full check in a fresh process."
    )


def _planted(path: Path) -> str:
    """Sums over the kernels that mistakes were planted in, and right kernels that were checked."""
    if not path.exists():
        return "Not measured."
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    counts: Counter[str] = Counter()
    for each in lines:
        counts.update(each.get("counts", {}))
    kernels = sum("counts" in each for each in lines)
    ends = [each for each in lines if "summary" in each]
    right = {key: sum(e["summary"][key] for e in ends) for key in _RIGHT}
    wrong = counts["quick"] + counts["full"] + counts["missed"]
    commits = ", ".join(dict.fromkeys(each["commit"] for each in ends))
    return (
        "| planted in | mistakes | same object file | caught by the quick check | by the full one |"
        " harmless, as far as known | missed | caught of what is wrong |"
        " right kernels | of them in full | false alarms |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|\n"
        f"| {kernels} kernels | {counts.total():,} | {counts['same']:,} | {counts['quick']:,} |"
        f" {counts['full']:,} | {counts['equivalent']:,} | {counts['missed']:,} |"
        f" {(wrong - counts['missed']) / wrong:.2%} | {right['right_kernels']:,} |"
        f" {right['of_them_checked_in_full']:,} | {right['false_alarms']:,} |\n\n"
        f"At commit {commits}."
    )


def _demo(path: Path) -> str:
    if not path.exists():
        return "Not measured."
    return f"```text\n{transcript(json.loads(path.read_text()))}\n```"


if __name__ == "__main__":
    sys.exit(main())
