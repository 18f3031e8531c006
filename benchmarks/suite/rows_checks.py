"""Rows of correctness: small and odd extents, emitted C, and the programs that attack Tilewright.

The attacking programs stand beside `run.py`; each can be run alone and ends with one JSON line.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.suite.cases import EXPRESSIONS, EXTENTS, GEMMS, OPERATORS, Case
from benchmarks.suite.context import (
    ROOT,
    Context,
    Row,
    RowError,
    last_document,
    last_words,
    run,
    run_json,
    shown,
    tilewright,
)
from benchmarks.suite.goals import figures

EXAMPLE = ROOT / "benchmarks" / "suite" / "link_me.c"
EMITTED = "matmul:M=100,N=70,K=50"


def extent_rows(context: Context) -> list[Row]:
    """Every operator and expression, once with equal and once with mixed extents."""
    chosen: dict[str, Case] = {}
    for case in (*GEMMS.values(), *OPERATORS, *EXPRESSIONS):
        chosen.setdefault(f"{case.operator or case.name} {case.epilogue}", case)
    return [
        Row(
            f"extents/{case.name}",
            partial(_check_extents, case=case),
            _extents_summary,
            12,
            timed=False,
        )
        for case in chosen.values()
    ]


def _check_extents(context: Context, *, case: Case) -> dict[str, Any]:
    """Both checks at once: no time is taken from this row, and most of it is starting processes."""
    trials, extents = (2, 3) if context.quick else (4, len(EXTENTS))
    counts = (1, 2) if context.cores > 1 else (1,)

    def check(threads: int) -> dict[str, Any]:
        command = [
            sys.executable, "-m", "benchmarks.suite.check_extents",
            case.name, str(threads), str(trials), str(extents),
        ]  # fmt: skip
        found: dict[str, Any] = run_json(command, context.folder, deadline_secs=600)[0]
        return found

    with ThreadPoolExecutor(len(counts)) as pool:
        parts = list(pool.map(check, counts))
    statuses = sum((Counter(part["by_status"]) for part in parts), Counter[str]())
    return {
        "case": case.name,
        "workloads": sum(part["workloads"] for part in parts),
        "by_status": dict(statuses),
        "problems": [
            f"{case.name}, {part['threads']} threads: {p}"
            for part in parts
            for p in part["problems"]
        ],
    }


def _extents_summary(data: dict[str, Any]) -> str:
    counts = ", ".join(f"{n} {status}" for status, n in data["by_status"].items())
    wrong = f"; {data['problems'][0]}" if data["problems"] else ""
    return f"{data['workloads']} workloads: {counts}{wrong}"


PROGRAMS = {
    "fuzz": ("fuzz_schedules", 600),
    "miscompiles": ("planted_miscompiles", 600),
    "bad": ("bad_candidates", 300),
    "kill": ("kill_tune", 600),
}
"""Group to module and deadline in seconds."""
QUICK_FLAGS = {
    "fuzz_schedules": ["--pairs", "40"],
    "planted_miscompiles": ["--controls", "24"],
    "bad_candidates": [],
    "kill_tune": ["--kills", "2", "--trials", "8"],
}


def program_rows(context: Context, group: str) -> list[Row]:
    """The row of an attacking program; none where it is not there."""
    module, deadline_secs = PROGRAMS[group]
    if not (ROOT / "benchmarks" / f"{module}.py").exists():
        return []
    measure = partial(_run_program, module=module, deadline_secs=float(deadline_secs))
    return [Row(group, measure, _program_summary, deadline_secs / 5, timed=False)]


def _run_program(context: Context, *, module: str, deadline_secs: float) -> dict[str, Any]:
    command = [sys.executable, "-m", f"benchmarks.{module}"]
    if context.quick:
        command += QUICK_FLAGS[module]
    code, out, errors, secs = run(command, context.folder, deadline_secs)
    if code not in (0, 1):  # 1: the program's own verdict, with its figures
        raise RowError(f"{shown(command)}: exit code {code}: {last_words(errors or out)}")
    document = last_document(command, out)
    return {"wall_secs": secs, **document, "passed": code == 0, "said": last_words(errors)}


def _program_summary(data: dict[str, Any]) -> str:
    return f"{'passed' if data['passed'] else 'NOT PASSED'}: {figures(data)}"


def emit_rows(context: Context) -> list[Row]:
    counts = (1, 2) if context.cores > 1 else (1,)
    return [
        Row(f"emit/{n}t", partial(_emit, threads=n), _emit_summary, 8, timed=False) for n in counts
    ]


def _emit(context: Context, *, threads: int) -> dict[str, Any]:
    """Tune, emit twice, compare the bytes, link `link_me.c` with -fopenmp and run it."""
    folder = context.fresh_folder(f"emit/{threads}t")
    flags = ["--db", str(folder / "tune.sqlite"), "--threads", str(threads)]
    tilewright(context.folder, "tune", EMITTED, "--trials", "4" if context.quick else "16", *flags)
    digests = []
    for number in (1, 2):
        out = folder / f"out{number}"
        arguments = [EMITTED, *flags, "-o", str(out), "--name", "gemm", "--ll", "--asm"]
        tilewright(context.folder, "emit", *arguments)
        digests.append({f.name: _sha256(f) for f in sorted(out.iterdir())})
    compiler = os.environ.get("CC", "cc")
    if shutil.which(compiler) is None:
        raise RowError(f"there is no C compiler {compiler!r}")
    out = folder / "out1"
    program = folder / "program"
    command = [
        compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-fopenmp", "-I", str(out),
        str(EXAMPLE), str(out / "gemm.o"), "-o", str(program),
    ]  # fmt: skip
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        raise RowError(f"{compiler}: {built.stderr.strip()[:300]}")
    ran = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=60)
    return {
        "threads": threads,
        "files": sorted(digests[0]),
        "same_bytes": digests[0] == digests[1],
        "exit_code": ran.returncode,
        "printed": ran.stdout.strip(),
        "lines_of_c": _code_lines(EXAMPLE),
    }


def _code_lines(path: Path) -> int:
    """Lines that are neither empty nor comment."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    return sum(1 for line in text.splitlines() if line.strip())


def _emit_summary(data: dict[str, Any]) -> str:
    same = "the same bytes twice" if data["same_bytes"] else "DIFFERENT BYTES"
    return f"{data['printed']}; {same}; {data['lines_of_c']} lines of C"


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
