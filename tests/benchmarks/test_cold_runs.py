"""The workloads and the tables of the cold runs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.cold_runs.__main__ import FILE, structures
from benchmarks.cold_runs.libraries import HELD_TO_AVX2, Race, instruction_limits, raced
from benchmarks.cold_runs.summary import (
    NEW,
    RELATED,
    better_library,
    first_over_best,
    groups_of_structure,
    kept_after,
    quantile,
    summary,
)
from benchmarks.commits.rows import rows
from benchmarks.suite.operator_suite import suite_cases
from benchmarks.suite.registry import workload_of
from tests.support.paths import ROOT
from tilewright.peers.bench import PeerTiming
from tilewright.schedules import operators
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.process.environment import steering


def result(name: str, first_secs: float | None, best_secs: float, **more: Any) -> dict[str, Any]:
    curve = [{"trial": 2, "best_run_secs": 2e-3}, {"trial": 9, "best_run_secs": 1e-3}]
    found: dict[str, Any] = {
        "name": name,
        "family": "product",
        "machine": "native",
        "threads": 1,
        "database": "empty",
        "more": [],
        "cpu": "znver5",
        "command_secs": 3.0,
        "wall_secs": 2.5,
        "wall_secs_by_phase": {"compile": 1.5, "wait": 1.0},
        "trials": {"total": 16, "ok": 16},
        "curve": curve,
        "default": None if first_secs is None else {"run_secs": first_secs},
        "best": {"run_secs": best_secs, "fraction_of_bound": 0.9, "trial": 9},
        "stopped_because": "predicted gain under 0.5% for 24 trials in a row",
    }
    return found | more


def test_no_workload_is_in_a_data_set_of_the_prior_or_in_the_operator_suite() -> None:
    known = {row.workload.key for row in rows()}
    known |= {workload_of(case).key for case in suite_cases()}
    own = [row.workload.key for row in rows(FILE)]
    assert len(own) >= 80
    assert len(set(own)) == len(own)
    assert not known & set(own)


def test_the_first_trial_is_compared_with_the_final_best() -> None:
    assert first_over_best(result("a", 2e-3, 1e-3)) == pytest.approx(0.5)
    assert first_over_best(result("a", None, 1e-3)) is None


def test_stopping_early_is_read_from_the_curve() -> None:
    assert kept_after(result("a", 2e-3, 1e-3), 1) is None
    assert kept_after(result("a", 2e-3, 1e-3), 8) == pytest.approx(0.5)
    assert kept_after(result("a", 2e-3, 1e-3), 9) == pytest.approx(1.0)


def test_a_quantile_is_the_value_of_a_row() -> None:
    values = [float(n) for n in range(80)]
    assert quantile(values, 0.05) == 4.0
    assert quantile(values, 0.9) == 72.0
    assert quantile([1.0], 0.9) == 1.0


def test_the_summary_lists_failures_apart_and_groups_reasons() -> None:
    text = summary([
        result("fast", 1e-3, 1e-3),
        result("slow", 2e-3, 1e-3, stopped_because="predicted gain under 1% for 3 trials in a row"),
        {"name": "refused", "family": "product", "error": "not verifiable"},
    ], {})  # fmt: skip
    assert "refused: no best schedule; not verifiable" in text
    assert "geomean 0.707" in text
    assert "  2  predicted gain under N for N trials in a row" in text
    assert "command without wait       2.00" in text
    assert "shared database" not in text
    assert summary([], {}) == "no results"


def test_related_workloads_of_the_file_have_one_structure() -> None:
    found = structures()
    assert set(found) == {row.name for row in rows(FILE)}
    assert found["mm_448x448x448"] == found["mm_997x1009x1013"]
    assert found["mm_448x448x448"] != found["mmnt_640x640x640"]


def test_a_row_is_related_if_an_earlier_one_of_its_structure_was_measured() -> None:
    structure = {"a": "product", "b": "row", "c": "product", "d": "row", "e": "column"}
    order = [
        result("a", 1e-3, 1e-3),
        {"name": "b", "family": "rows", "error": "not verifiable"},
        result("c", 1e-3, 1e-3),
        result("d", None, 1e-3, trials={"total": 3, "ok": 0}, best=None),
        result("e", 1e-3, 1e-3),
    ]
    groups = groups_of_structure(order, structure)
    assert [r["name"] for r in groups[NEW]] == ["a", "b", "d", "e"]
    assert [r["name"] for r in groups[RELATED]] == ["c"]
    others = groups_of_structure([order[2], order[4], order[0]], structure)
    assert [r["name"] for r in others[NEW]] == ["c", "e"]
    assert [r["name"] for r in others[RELATED]] == ["a"]


def test_a_shared_database_is_reported_by_structure() -> None:
    curve = [{"trial": 4, "best_run_secs": 1.25e-3}, {"trial": 9, "best_run_secs": 1e-3}]
    shared = {"database": "shared", "database_model": {}, "related": [], "curve": curve}
    lent = {"related": [{"trials": 6}], "database_model": {"share": 0.5}}
    text = summary(
        [
            result("a", 2e-3, 1e-3, **shared),
            result("b", 1e-3, 1e-3, **(shared | lent)),
            result("c", None, 1e-3, **(shared | lent)),
        ],
        dict.fromkeys("abc", "product"),
    )
    first, later = text.split(f"{NEW}: 1 rows")[1].split(f"{RELATED}: 2 rows")
    assert "trial 1 / final best: geomean 0.500, 5th percentile 0.500; 0 failed" in first
    assert "0 used trials of related workloads, 0 the model of the database" in first
    assert "trial 1 / final best: geomean 1.000, 5th percentile 1.000; 1 failed" in later
    assert "best of the first 4 trials / best of all: geomean 0.800" in later
    assert "2 used trials of related workloads, 2 the model of the database" in later


VERSIONS = {
    "numpy": {"numpy": "2.4.6", "simd": "X86_V3", "blas": "OpenBLAS 0.3", "core": "Haswell"},
    "torch": {"torch": "2.13.0", "capability": "AVX2"},
}


def side(library: str, speedup: float | None) -> dict[str, Any]:
    if speedup is None:
        return asdict(PeerTiming(detail="not installed"))
    spread = speedup, speedup - 0.02, speedup + 0.02
    timing = PeerTiming(1e-3 * speedup, *spread, way="a call", libraries=VERSIONS[library])
    return asdict(timing)


def with_race(name: str, numpy: float | None, torch: float | None) -> dict[str, Any]:
    race = {
        "kernel": {"run_secs": 1e-3},
        "against": {"numpy": side("numpy", numpy), "torch": side("torch", torch)},
        "environment": {"OPENBLAS_CORETYPE": "Haswell"},
        "busy_share": 0.5,
    }
    return result(name, 1e-3, 1e-3, race=race)


def test_the_better_library_is_the_one_with_the_smaller_ratio() -> None:
    assert better_library(with_race("a", 3.0, 1.5)) == "torch"
    assert better_library(with_race("a", 3.0, None)) == "numpy"
    assert better_library(with_race("a", None, None)) is None
    assert better_library({"race": {"error": "the kernel cannot be timed"}}) is None


def test_races_are_reported_with_rows_under_limits_and_what_libraries_say() -> None:
    text = summary(
        [
            with_race("slower", 0.9, 2.0),
            with_race("tie", 0.98, 2.0),
            with_race("faster", 4.0, 4.5),
            with_race("alone", None, None),
            result("broken", 1e-3, 1e-3, race={"error": "the kernel cannot be timed"}),
        ],
        {},
    )
    assert "(speed): 3 rows, 3 on a busy machine" in text
    assert "geomean 1.522, least 0.900 (slower)" in text
    assert "under 1: 2 rows, 1 with their whole interval" in text
    assert "under 0.97: 1 rows, 1 with their whole interval" in text
    assert "0.900 [0.880, 0.920]  slower: 1000 us, numpy 900 us (a call)" in text
    assert "4 rows  OPENBLAS_CORETYPE=Haswell" in text
    assert "3 rows  NumPy 2.4.6 (X86_V3), OpenBLAS 0.3" in text
    assert "3 rows  PyTorch 2.13.0 (AVX2)" in text
    assert "1 rows  no torch: not installed" in text
    assert "1 rows  broken: no race; the kernel cannot be timed" in text
    assert "OPENBLAS" not in summary([result("a", 1e-3, 1e-3)], {})


def test_libraries_are_held_to_the_instructions_of_the_machine() -> None:
    assert instruction_limits("native") == {}
    limits = instruction_limits("avx2")
    assert limits.items() > HELD_TO_AVX2.items()
    assert steering(limits) == limits  # nothing of it reaches a process that is not asked for it
    code = "from tilewright.peers.library_versions import numpy_libraries as n; print(n()['simd'])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env=os.environ | limits, cwd=ROOT,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stdout.startswith(("AVX512", "X86_V4"))


def test_a_kernel_that_is_not_stored_has_no_race(tmp_path: Path) -> None:
    workload = operators.build("matmul", M=4, N=4, K=4).normalised()
    race = Race(("numpy",), 0.1, 0.0)
    found = raced(race, workload, detect(), "native", str(tmp_path / "empty.sqlite"))
    assert set(found) == {"error"}
