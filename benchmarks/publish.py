"""Publish what was measured: `python -m benchmarks.publish`, and `--check` that texts say the same.

Takes `results/results.jsonl` (and `results/demo.json`, of `examples/demo.py --save`), keeps what
the published tables need in `published/`, which is committed, and writes the tables between markers
in `TEXTS` from it. No figure there is typed by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.published_tables import tables
from benchmarks.suite.results import Result, ResultsFile

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PUBLISHED = ROOT / "benchmarks" / "published"
TEXTS = ("README.md", "docs/benchmarks.md", "docs/benchmarks_rows.md", "docs/search.md")
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


if __name__ == "__main__":
    sys.exit(main())
