"""What the figures are held against: one judgement a line of the table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from math import exp, log
from typing import Any

from benchmarks.suite.results import Result, ResultsFile

SHORT_SECS = 1e-3
Data = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A line of the table. `met` is None where nothing was measured."""

    what: str
    to_reach: str
    measured: str
    met: bool | None
    rows: tuple[Result, ...] = ()


def judge(results: ResultsFile) -> list[Judgement]:
    """Every goal, in the order of the groups."""
    speed = {**results.matching("ops/"), **results.matching("expressions/")}
    gemms = results.matching("gemm/")
    return [
        *(_gemm(results, name) for name in ("matmul 512", "matmul 1024")),
        *_ratios(results, "matmul 1024", 2, of_peak=0.95),
        *_ratios(results, "matmul 1000", 1, of_peak=0.96),
        *_ratios(results, "matmul 127x131x137", 1, of_peak=0.60),
        _default("default against best, matrix products above", gemms),
        _default("default against best, all other cases", speed),
        _against_peers("operators of the library", results.matching("ops/")),
        _against_peers("expressions in no library", results.matching("expressions/")),
        _extents(results.matching("extents/")),
        _trial_secs(speed),
        _compile_secs(gemms),
        *(_program(results, key, what, to_reach) for key, what, to_reach in _PROGRAMS),
        _emit(results.matching("emit/")),
    ]


def _gemm(results: ResultsFile, name: str) -> Judgement:
    """Three promises of one kind of run: share of the peak, against NumPy, wall time."""
    rows = results.matching(f"gemm/{name}/1t/")
    what = f"tune {name}, f32, one core, 64 trials from a cold start"
    to_reach = ">= 0.96 of the peak; > 1.05x NumPy; <= 20 s"
    if not rows:
        return _nothing(what, to_reach)
    shares = [r.data["of_peak"]["median"] for r in rows.values()]
    numpy = [r.data["race"]["numpy"]["ratio"]["median"] for r in rows.values()]
    walls = [r.data["process_secs"] for r in rows.values()]
    share, faster, wall = (statistics.median(v) for v in (shares, numpy, walls))
    measured = (
        f"{share:.3f} ({min(shares):.3f} to {max(shares):.3f}); {faster:.2f}x"
        f" ({min(numpy):.2f} to {max(numpy):.2f}); {wall:.1f} s ({min(walls):.1f} to"
        f" {max(walls):.1f}); {_count(rows, 'run')}"
    )
    return Judgement(
        what, to_reach, measured, share >= 0.96 and faster > 1.05 and wall <= 20,
        tuple(rows.values()),
    )  # fmt: skip


def _ratios(
    results: ResultsFile, name: str, threads: int, *, of_peak: float
) -> Iterable[Judgement]:
    rows = results.matching(f"gemm/{name}/{threads}t/")
    what = f"{name}, f32, {'one core' if threads == 1 else f'{threads} threads'}"
    whose = "the peak" if threads == 1 else f"{threads} cores' peak"
    to_reach = f">= {of_peak:.2f} of {whose}"
    if not rows:
        yield _nothing(what, to_reach)
    for row in rows.values():
        share, numpy = row.data["of_peak"], row.data["race"]["numpy"]["ratio"]
        measured = (
            f"{share['median']:.3f} ({share['low']:.3f} to {share['high']:.3f});"
            f" {numpy['median']:.2f}x NumPy; {row.data['process_secs']:.1f} s"
        )
        yield Judgement(what, to_reach, measured, share["median"] >= of_peak, (row,))


def _default(what: str, rows: dict[str, Result]) -> Judgement:
    found = {
        k: r.data["default_against_best"]
        for k, r in rows.items()
        if "default_against_best" in r.data
    }
    if not found:
        return _nothing(what, ">= 0.6")
    worst = min(found, key=found.__getitem__)
    measured = (
        f"worst {found[worst]:.2f} ({worst}), median {statistics.median(found.values()):.2f},"
        f" {sum(v < 0.6 for v in found.values())} of {len(found)} below"
    )
    bench = rows[worst].data.get("bench")
    if bench and bench["against"]["default"]["speedup"]:
        measured += f"; `bench` finds {1 / bench['against']['default']['speedup']:.2f} there"
    return Judgement(what, ">= 0.6", measured, found[worst] >= 0.6, tuple(rows.values()))


def _against_peers(what: str, rows: dict[str, Result]) -> Judgement:
    to_reach = "geomean > 1.05x the better of NumPy and PyTorch, none under 0.97x for sure"
    found = {
        k: r.data["against_best_peer"]["median"]
        for k, r in rows.items()
        if "against_best_peer" in r.data
    }
    if not found:
        return _nothing(what, to_reach)
    worst = min(found, key=found.__getitem__)
    below = [k for k in found if rows[k].data["against_best_peer"]["high"] < 0.97]
    measured = (
        f"worst {found[worst]:.2f}x ({worst}), geomean {geomean(found.values()):.2f}x,"
        f" {len(below)} of {len(found)} below"
    )
    met = geomean(found.values()) > 1.05 and not below
    return Judgement(what, to_reach, measured, met, tuple(rows.values()))


def _extents(rows: dict[str, Result]) -> Judgement:
    what = "all of them at extents 1, 2, 3, 7, 13, 17, 31, 33, 65"
    to_reach = "every candidate right"
    if not rows:
        return _nothing(what, to_reach)
    problems = [p for r in rows.values() for p in r.data["problems"]]
    candidates = sum(sum(r.data["by_status"].values()) for r in rows.values())
    workloads = sum(r.data["workloads"] for r in rows.values())
    measured = f"{candidates} candidates of {workloads} workloads, {len(problems)} problems"
    if problems:
        measured += f", the first: {problems[0][:120]}"
    return Judgement(what, to_reach, measured, not problems, tuple(rows.values()))


def _trial_secs(rows: dict[str, Result]) -> Judgement:
    what, to_reach = "wall time a trial, operators under 1 ms, median", "<= 100 ms"
    found = {
        k: r.data["tune"]["wall_secs"] / max(r.data["tune"]["trials"]["total"], 1)
        for k, r in rows.items()
        if r.data["race"]["kernel"]["run_secs"] < SHORT_SECS
    }
    if not found:
        return _nothing(what, to_reach)
    middle, worst = statistics.median(found.values()), max(found, key=found.__getitem__)
    measured = f"{middle * 1e3:.0f} ms; worst {found[worst] * 1e3:.0f} ms ({worst})"
    return Judgement(what, to_reach, measured, middle <= 0.1, tuple(rows[k] for k in found))


def _compile_secs(rows: dict[str, Result]) -> Judgement:
    what, to_reach = "compile of a matrix product candidate, median", "<= 40 ms"
    found = {k: r.data["compile_secs"]["median"] for k, r in rows.items()}
    if not found:
        return _nothing(what, to_reach)
    middle, worst = statistics.median(found.values()), max(found, key=found.__getitem__)
    trials = sum(r.data["compile_secs"]["trials"] for r in rows.values())
    measured = (
        f"{middle * 1e3:.0f} ms over {trials} candidates;"
        f" slowest run's median {found[worst] * 1e3:.0f} ms ({worst})"
    )
    return Judgement(what, to_reach, measured, middle <= 0.04, tuple(rows.values()))


_PROGRAMS = (
    ("fuzz", "2,000 random (workload, legal trace) pairs: interpreter, kernel and NumPy",
     "all agree; illegal traces raise"),
    ("miscompiles", "planted miscompiles, at least 50", "all caught, no false alarm"),
    ("bad", "candidates that crash, hang, eat memory, write outside",
     "typed statuses, session goes on, no process left"),
    ("kill", "kill -9 during tune at 10 random moments",
     "every reported trial stored, the same command finishes"),
)  # fmt: skip


def _program(results: ResultsFile, key: str, what: str, to_reach: str) -> Judgement:
    """The program's own verdict and figures."""
    row = results.rows.get(key)
    if row is None or row.failed:
        return _nothing(what, to_reach, row)
    return Judgement(what, to_reach, figures(row.data), bool(row.data["passed"]), (row,))


def figures(data: Data) -> str:
    """The numbers of a program's summary, those of parts included, and what was wrong."""
    parts = []
    for name, value in data.items():
        if isinstance(value, dict):
            parts.append(f"{name.replace('_', ' ')} ({figures(value)})" if value else "")
        elif isinstance(value, list) and value:
            parts.append(f"{len(value)} {name.replace('_', ' ')}, the first: {value[0]!s:.100}")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            parts.append(f"{name.replace('_', ' ')} {shown}")
    return ", ".join(part for part in parts if part)


def _emit(rows: dict[str, Result]) -> Judgement:
    what, to_reach = "emit, linked by a C program with cc -fopenmp", "right numbers, same bytes"
    if not rows:
        return _nothing(what, to_reach)
    good = all(r.data["same_bytes"] and r.data["exit_code"] == 0 for r in rows.values())
    measured = "; ".join(
        f"{r.data['threads']} threads: {r.data['printed']},"
        f" {'same bytes' if r.data['same_bytes'] else 'different bytes'}"
        for r in rows.values()
    )
    lines = next(iter(rows.values())).data["lines_of_c"]
    return Judgement(what, to_reach, f"{measured}; {lines} lines of C", good, tuple(rows.values()))


def _nothing(what: str, to_reach: str, row: Result | None = None) -> Judgement:
    said = f"failed: {row.failed[:120]}" if row is not None and row.failed else "not measured"
    return Judgement(what, to_reach, said, None)


def _count(rows: dict[str, Result], word: str) -> str:
    return f"{len(rows)} {word}{'s' if len(rows) != 1 else ''}"


def geomean(values: Iterable[float]) -> float:
    """The geometric mean of positive numbers."""
    logs = [log(v) for v in values]
    return exp(sum(logs) / len(logs))
