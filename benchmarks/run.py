"""Measure everything the project claims about itself: `make bench`, or `python -m benchmarks.run`.

Every row is appended to `benchmarks/results/results.jsonl` when it is measured; the same command
goes on where it was stopped. At the end `table.md` and `roofline.png` stand beside that file.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.suite import machine
from benchmarks.suite.context import ROOT, Context, Row, RowError, Settings, tilewright
from benchmarks.suite.crew import Crew
from benchmarks.suite.families import FAMILIES
from benchmarks.suite.family_goals import read_tvm
from benchmarks.suite.results import Result, ResultsFile, now
from benchmarks.suite.rows_checks import PROGRAMS, emit_rows, extent_rows, program_rows
from benchmarks.suite.rows_speed import expression_rows, gemm_rows, operator_rows
from benchmarks.suite.rows_suite import CONSTANTS, constant_rows, suite_rows
from benchmarks.suite.rows_tails import tail_rows
from tilewright.peers.variants import COMPILE_SECS

FOLDER = ROOT / "benchmarks" / "results"
TVM_FILE = "tvm.jsonl"
GROUPS: dict[str, Callable[[Context], list[Row]]] = {
    "gemm": gemm_rows,
    "ops": operator_rows,
    "expressions": expression_rows,
    "suite": suite_rows,
    CONSTANTS: constant_rows,
    "tails": tail_rows,
    "emit": emit_rows,
    "extents": extent_rows,
    **{group: partial(program_rows, group=group) for group in PROGRAMS},
}
PATIENCE_SECS, IMPATIENCE_SECS = 60.0, 5.0
INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Measure what is missing and write the report; 0 unless a row could not be measured."""
    options = _options(arguments)
    folder = options.folder / "quick" if options.quick else options.folder
    results = ResultsFile(folder / "results.jsonl")
    if options.tvm:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(options.tvm, folder / TVM_FILE)
    if not options.report_only:
        with Crew(folder / "crew") as crew:
            _measure_missing(options, folder, results, crew)
    return _report(folder)


def _measure_missing(
    options: argparse.Namespace, folder: Path, results: ResultsFile, crew: Crew
) -> None:
    """Every row that is asked for and not there."""
    context = _context(folder, options, crew, _tuned(results) if options.race_again else {})
    description = machine.describe(context.target, ROOT)
    session = results.begin({**description, "quick": options.quick})
    rows = [row for group in options.rows for row in GROUPS[group](context)]
    if options.only:
        rows = [row for row in rows if any(part in row.key for part in options.only.split(","))]
    rows = sampled(rows, options.every)
    if options.race_again:
        rows = [row for row in rows if row.key in context.tuned]
    everything = options.fresh or options.race_again
    wanted = [r for r in rows if everything or _missing(r, results, options.redo_busy)]
    _say(f"{len(rows)} rows, {len(rows) - len(wanted)} measured before; results in {folder}")
    _warn_of_other_commits(results, description["commit"], rows)
    _measure(wanted, context, results, session, 0.0 if options.quick else PATIENCE_SECS)


def sampled(rows: list[Row], every: int) -> list[Row]:
    """Of each group and family the first case and every `every`-th after it, in all their rows.

    A row's key is group/family/case/threads; those of other groups are kept as they are.
    """
    cases: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.key.count("/") == 3:
            family, case, _ = row.key.rsplit("/", 2)
            cases.setdefault(family, {})[case] = None
    kept = {(f, c) for f, found in cases.items() for c in list(found)[::every]}
    parts = [tuple(row.key.rsplit("/", 2)[:2]) for row in rows]
    return [
        row
        for row, part in zip(rows, parts, strict=True)
        if row.key.count("/") != 3 or part in kept
    ]


def _measure(
    rows: list[Row], context: Context, results: ResultsFile, session: str, patience_secs: float
) -> None:
    remaining = sum(row.expected_secs for row in rows)
    pace = 1.0  # how long rows really take, of what was expected
    for number, row in enumerate(rows, start=1):
        head = f"[{number}/{len(rows)}, {_minutes(remaining * pace)} left] {row.key}"
        busy = 0.0
        if row.timed:
            busy = machine.wait_until_quiet(patience_secs, _say)
            if busy > machine.QUIET_SHARE:  # it will not become quiet for the next row either
                patience_secs = min(patience_secs, IMPATIENCE_SECS)
        start = time.monotonic()
        try:
            data = row.run(context)
            said = row.summary(data)
        except RowError as failure:
            data, said = {"failed": str(failure)}, f"FAILED: {failure}"
        secs = time.monotonic() - start
        results.add(Result(row.key, now(), session, busy, data))
        remaining -= row.expected_secs
        pace = 0.8 * pace + 0.2 * secs / row.expected_secs
        _say(f"{head}: {said} ({secs:.0f} s)")


def _report(folder: Path) -> int:
    """The table and the plot, made by a process of their own: they need matplotlib."""
    command = [sys.executable, "-m", "benchmarks.report", str(folder)]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _tuned(results: ResultsFile) -> dict[str, dict[str, Any]]:
    """Rows whose kernels can be raced again, by key, with the commit that tuned them."""
    found = {}
    for key, row in results.rows.items():
        if row.failed is None and "tune" in row.data and "compile_secs" in row.data:
            at = row.data.get("tuned_at") or results.sessions[row.session]["commit"]
            found[key] = {**row.data, "tuned_at": at}
    return found


def _context(
    folder: Path, options: argparse.Namespace, crew: Crew, tuned: dict[str, dict[str, Any]]
) -> Context:
    folder.mkdir(parents=True, exist_ok=True)
    fresh = [] if options.quick else ["--fresh"]
    target, _ = tilewright(folder, "target", *fresh)
    settings = Settings(
        trials=options.trials,
        families=tuple(options.families),
        heavy=options.heavy,
        default_side=options.with_default,
        tvm_python=options.tvm_python or "",
        tvm_trials=options.tvm_trials,
        compile_secs=options.compile_secs,
    )
    return Context(folder, target, options.quick, crew, settings, tuned)


def _missing(row: Row, results: ResultsFile, redo_busy: bool) -> bool:
    known = results.rows.get(row.key)
    if known is None or known.failed is not None:
        return True
    return redo_busy and row.timed and known.busy_share > machine.QUIET_SHARE


def _warn_of_other_commits(results: ResultsFile, commit: str, rows: list[Row]) -> None:
    sessions = {results.rows[r.key].session for r in rows if r.key in results.rows}
    others = {results.sessions[s]["commit"] for s in sessions if s in results.sessions} - {commit}
    if others:
        _say(f"some rows were measured at {', '.join(sorted(others))}; --fresh measures them again")


def _minutes(secs: float) -> str:
    return f"{max(secs, 0) / 60:.0f} min" if secs >= 90 else f"{max(secs, 0):.0f} s"


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--rows", type=_groups, default=list(GROUPS), metavar="GROUP,...",
        help=f"only these groups, of {', '.join(GROUPS)}",
    )  # fmt: skip
    parser.add_argument(
        "--only", metavar="TEXT,...", help="only rows with one of these in their key"
    )
    parser.add_argument("--fresh", action="store_true", help="measure again what is there")
    parser.add_argument(
        "--redo-busy", action="store_true", help="measure again what was timed on a busy machine"
    )
    parser.add_argument(
        "--race-again", action="store_true",
        help="race the kernels of the suite that are there once more, tuning nothing",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="does everything work? no figures")
    parser.add_argument("--report-only", action="store_true", help="only write table and plot")
    _add_suite_options(parser)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where results are kept")
    return parser.parse_args(arguments)


def _add_suite_options(parser: argparse.ArgumentParser) -> None:
    """What only the group `suite` looks at."""
    suite = parser.add_argument_group("operator suite")
    suite.add_argument(
        "--families", type=_families, default=[], metavar="FAMILY,...",
        help=f"only these families, of {', '.join(FAMILIES)}",
    )  # fmt: skip
    suite.add_argument(
        "--every", type=int, default=1, metavar="K", help="only every K-th case of each family"
    )
    suite.add_argument("--trials", type=int, default=24, help="trials a case (default: 24)")
    suite.add_argument("--heavy", action="store_true", help="also cases of over 2e10 operations")
    suite.add_argument(
        "--with-default", action="store_true", help="race the schedule chosen without measuring too"
    )
    suite.add_argument(
        "--tvm", type=_tvm_file, metavar="FILE", help="TVM medians measured elsewhere, JSON lines"
    )
    suite.add_argument(
        "--tvm-python",
        type=_program,
        metavar="PATH",
        help="an interpreter with TVM: it tunes too",
    )
    suite.add_argument("--tvm-trials", type=int, default=128, help="(default: 128)")
    suite.add_argument(
        "--compile-secs", type=float, default=COMPILE_SECS, metavar="S",
        help=f"limit of torch.compile a row, 0 for eager alone (default: {COMPILE_SECS:g})",
    )  # fmt: skip


def _tvm_file(text: str) -> Path:
    """Read now: a copy that cannot be read would break every later report."""
    if not Path(text).is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no file")
    try:
        read_tvm(Path(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return Path(text)


def _program(text: str) -> str:
    found = shutil.which(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no program")
    return str(Path(found).absolute())


def _families(text: str) -> list[str]:
    return _names(text, FAMILIES)


def _groups(text: str) -> list[str]:
    return _names(text, GROUPS)


def _names(text: str, known: Iterable[str]) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
    return names


if __name__ == "__main__":
    os.chdir(ROOT)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        _say("stopped; every finished row is kept, and the same command goes on from there")
        sys.exit(INTERRUPTED)
