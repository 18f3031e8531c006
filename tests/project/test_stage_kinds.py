"""Kinds of stages are a closed union: whoever adds one is led by the type checker to every place
that has to say something about it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from tests.support.paths import ROOT
from tilewright.schedules.workload.tensors import StageKind

UNION = ROOT / "schedules" / "workload" / "tensors.py"
KINDS = {kind.__name__ for kind in get_args(StageKind)}

PACKAGES = (
    "schedules", "costmodel", "tuner", "db", "service", "tilewright/peers", "benchmarks",
)  # fmt: skip

READERS = {
    "schedules/lowering/lower.py",
    "schedules/reference/error_bound.py",
    "schedules/reference/error_sums.py",
    "schedules/reference/evaluate.py",
    "schedules/reference/exactness.py",
    "schedules/reference/sample.py",
    "schedules/sketches/analysis/stages.py",
    "schedules/workload/document.py",
    "schedules/workload/flops.py",
    "schedules/workload/normalise.py",
    "schedules/workload/tensors.py",
    "schedules/workload/validate.py",
    "tuner/judge/discriminating_inputs.py",
    "tuner/machine/least_work.py",
}
"""Files whose answer differs by kind."""


def test_a_new_kind_is_a_type_error_in_every_reader(tmp_path: Path) -> None:
    declared = "StageKind: TypeAlias = Elementwise | Reduction | Scan | TupleReduction\n"
    text = UNION.read_text(encoding="utf-8")
    assert declared in text
    extended = f"class Gather:\n    pass\n\n\n{declared.rstrip()} | Gather\n"
    shadow = tmp_path / "tensors.py"
    shadow.write_text(text.replace(declared, extended), encoding="utf-8")
    checked = ("schedules", "tuner/judge", "tuner/machine")
    found = subprocess.run(
        [
            sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"),
            "--shadow-file", str(UNION.relative_to(ROOT)), str(shadow), *checked,
        ],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    errors = [line for line in found.stdout.splitlines() if ": error:" in line]
    assert errors, found.stdout + found.stderr
    assert all("assert_never" in line for line in errors), errors
    assert {line.split(":")[0] for line in errors} == READERS


def _matches_of_kinds(tree: ast.AST) -> Iterator[ast.Match]:
    """The `match` statements of which a case names a kind of a stage."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Match) and any(
            isinstance(part, ast.MatchClass) and ast.unparse(part.cls) in KINDS
            for case in node.cases
            for part in ast.walk(case.pattern)
        ):
            yield node


def test_a_match_of_kinds_names_all_of_them_or_looks_for_one() -> None:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for match in _matches_of_kinds(ast.parse(path.read_text(encoding="utf-8"))):
                last = ast.unparse(match.cases[-1])
                fine = "assert_never" in last or len(match.cases) == 2
                assert fine, f"{path.relative_to(ROOT)}:{match.lineno} ends in {last}"
