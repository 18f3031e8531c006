"""Rows of the operator suite: every case by family, on one and two threads; and of some cases
once more with their weights marked constant, in a group of their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.suite.cases import Case
from benchmarks.suite.context import Context, Row, RowError, environment
from benchmarks.suite.crew import RaceError
from benchmarks.suite.duel import INPUT_SEED, derived, shortened
from benchmarks.suite.families import Family, families_of, family_of
from benchmarks.suite.operator_suite import constant_cases, heavy_cases, suite_cases
from benchmarks.suite.race import PEERS, build_library, race
from benchmarks.suite.registry import workload_of
from benchmarks.suite.tvm_side import tvm_best, tvm_request
from tilewright.tuner.session.roofline_bound import PROBE_ERROR

CONSTANTS = "constants"
RACE_SECS = 1.0
SEED = 0
TUNE_DEADLINE_SECS = 600.0


def suite_rows(context: Context) -> list[Row]:
    """One row a case and thread count, in the order of the suite."""
    heavy = heavy_cases() if context.settings.heavy else ()
    return _rows(context, "suite", [*suite_cases(), *heavy])


def constant_rows(context: Context) -> list[Row]:
    """The same for what is packed ahead. No family counts these."""
    return _rows(context, CONSTANTS, list(constant_cases()))


def _rows(context: Context, group: str, cases: list[Case]) -> list[Row]:
    settings = context.settings
    if context.quick:  # the smallest of each family
        cases.sort(key=lambda case: workload_of(case).flops)
        cases = list({family_of(case).key: case for case in reversed(cases)}.values())
    counts = (1, 2) if context.cores > 1 else (1,)
    rows = []
    for case in cases:
        family = family_of(case)
        if settings.families and family.key not in settings.families:
            continue
        rows += [_row(context, group, case, family, threads) for threads in counts]
    return rows


def _row(context: Context, group: str, case: Case, family: Family, threads: int) -> Row:
    key = f"{group}/{family.key}/{case.name}/{threads}t"
    run = partial(measure, key=key, case=case, family=family.key, threads=threads)
    trials = 4 if context.quick else context.settings.trials
    return Row(key, run, summary, 4.5 + trials * 0.1)


def measure(context: Context, *, key: str, case: Case, family: str, threads: int) -> dict[str, Any]:
    """Tune, emit, and race against the libraries. What has constant inputs takes part twice: as the
    `kernel` that finds them packed, and as `packing` in every call."""
    settings = context.settings
    seconds = 0.1 if context.quick else RACE_SECS
    tuned = _tune(context, key, case, threads)
    folder, report, bound = tuned.folder, tuned.report, tuned.bound
    tvm = tvm_best(context, case, threads) if settings.tvm_python else None
    common = {"case": case.name, "reference": str(folder / "reference.npy")}
    try:
        sides: dict[str, dict[str, Any]] = {
            "kernel": {**common, **_kernel(folder / "kernel.o", case)},
            "peak": {"target": context.target},
            "numpy": common,
            "torch": {**common, "compile_secs": settings.compile_secs},
        }
        if case.constants:
            sides["packing"] = {**common, "library": str(_library(folder / "kernel.o", case))}
        if settings.default_side:
            sides["default"] = {**common, **_kernel(folder / "default.o", case)}
        if tvm is not None:
            sides["tvm"] = {**common, **tvm_request(tvm, settings.tvm_python)}
        result = race(sides, context.crew, threads=threads, seconds=seconds, seed=INPUT_SEED)
    except RaceError as error:
        raise RowError(str(error)) from error
    finally:
        (folder / "reference.npy").unlink(missing_ok=True)  # up to half a gigabyte
    return {
        "case": case.name,
        "family": family,
        "families": [each.key for each in families_of(case)],
        "threads": threads,
        "tune": shortened(report),
        "tuned_at": tuned.commit,
        "process_secs": tuned.process_secs,
        "compile_secs": tuned.compile_secs,
        **against_bound(bound, result, threads),
        "prepack": prepack_figures(report, result),
        "tvm": tvm,
        "race": result,
        **derived(report, result, threads),
    }


@dataclass(frozen=True, slots=True)
class _Tuned:
    """What was tuned, in `folder` the kernel of it. `commit` None: in this session."""

    folder: Path
    report: dict[str, Any]
    bound: dict[str, Any]
    process_secs: float
    compile_secs: dict[str, float] | None
    commit: str | None


def _tune(context: Context, key: str, case: Case, threads: int) -> _Tuned:
    """A case tuned, or its kernel of an earlier session made again from the record found then.

    RowError where nothing works."""
    common = {"case": case.name, "threads": threads, "input_seed": INPUT_SEED}
    before = context.tuned.get(key)
    if before is not None:
        folder = context.row_folder(key)
        record = before["tune"]["best"]["record_key"]
        found = _ask(context, {**common, "folder": str(folder), "record_key": record})
        times = before["process_secs"], before["compile_secs"]
        return _Tuned(folder, before["tune"], found["bound"], *times, before["tuned_at"])
    folder = context.fresh_folder(key)
    found = _ask(
        context,
        {
            **common,
            "folder": str(folder),
            "trials": 4 if context.quick else context.settings.trials,
            "seed": SEED,
            "default": context.settings.default_side,
        },
    )
    report = found["report"]
    if report["best"] is None:
        raise RowError(f"tuning found nothing that works: {report['trials']['by_status']}")
    times = found["process_secs"], report["compile_secs"]
    return _Tuned(folder, report, found["bound"], *times, None)


def _ask(context: Context, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return context.crew.tune(request, environment(context.folder), TUNE_DEADLINE_SECS)
    except RaceError as error:
        raise RowError(str(error)) from error


def against_bound(bound: dict[str, Any], result: dict[str, Any], threads: int) -> dict[str, Any]:
    """The bound and the kernel's fractions of it. A right kernel that is faster than the bound by
    more than a probe's error proves it wrong: the bound is then that of the kernel, and
    `beaten_by` says by how much it was too high."""
    share = float(bound["secs"] / result["kernel"]["run_secs"])
    beside = of_bound_beside(bound, result, threads)
    wrong = {"beaten_by": max(share, beside)} if max(share, beside) > PROBE_ERROR else {}
    return {
        "bound": bound | wrong,
        "of_bound": min(share, 1.0),
        "of_bound_beside": min(beside, 1.0),
    }


def of_bound_beside(bound: dict[str, Any], result: dict[str, Any], threads: int) -> float:
    """The fraction of the bound at the speed the cores had during the race.

    Where arithmetic binds, the peak beside the kernel takes the place of the session's probe, block
    by block: clocks drift, and a virtual machine's second core is not always there.
    """
    if bound["binds"] != "compute" or "ratio" not in result["peak"]:
        return float(bound["secs"] / result["kernel"]["run_secs"])
    probed_secs = threads / bound["peak_gflops"]  # what the side "peak" took when it was probed
    return float(bound["secs"] / probed_secs * result["peak"]["ratio"]["median"])


def prepack_figures(
    report: dict[str, Any], result: dict[str, Any]
) -> dict[str, dict[str, float | None]] | None:
    """Seconds of a call that finds its constant operands packed, and of one that packs them: as
    they were raced, and as tuning said. None without such operands.

    RowError if a side that packs gave no figure: one without the other tells nothing.
    """
    best = report["best"]
    if not best["packed_ahead"]:
        return None
    if "run_secs" not in result["packing"]:
        raise RowError(f"no time with packing: {result['packing']['missing']}")
    return {
        "raced": {
            "run_secs": result["kernel"]["run_secs"],
            "run_secs_with_packing": result["packing"]["run_secs"],
        },
        "tuned": {key: best[key] for key in ("run_secs", "run_secs_with_packing")},
    }


def _kernel(object_file: Path, case: Case) -> dict[str, Any]:
    """The side whose time counts: it finds constant inputs packed, if there are any."""
    if not case.constants:
        return {"library": str(_library(object_file, case))}
    # `packed` stands for the constant inputs.
    count = len(workload_of(case).arguments) - len(case.constants) + 1
    library = build_library(object_file, count, "kernel_prepacked")
    return {"library": str(library), "prepacked": True}


def _library(object_file: Path, case: Case) -> Path:
    return build_library(object_file, len(workload_of(case).arguments))


def summary(data: dict[str, Any]) -> str:
    """A row's figures in one line."""
    parts = [
        f"{data['race']['kernel']['run_secs'] * 1e6:.4g} us, {data['gflops']:.1f} GFLOP/s",
        f"{data['of_bound_beside']:.2f} of the bound ({data['bound']['binds']})",
    ]
    for peer in (*PEERS, "tvm", "packing"):
        side = data["race"].get(peer, {})
        if "ratio" in side:
            parts.append(f"{side['ratio']['median']:.2f}x {peer}")
        elif side:
            parts.append(f"no {peer}: {side['missing'][:80]}")
    return ", ".join(parts)
