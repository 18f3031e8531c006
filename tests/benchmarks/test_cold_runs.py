"""The workloads and the tables of the cold runs."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.cold_runs.__main__ import FILE
from benchmarks.cold_runs.summary import first_over_best, kept_after, quantile, summary
from benchmarks.commits.rows import rows
from benchmarks.suite.operator_suite import suite_cases
from benchmarks.suite.registry import workload_of


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
    ])  # fmt: skip
    assert "refused: no best schedule; not verifiable" in text
    assert "geomean 0.707" in text
    assert "  2  predicted gain under N for N trials in a row" in text
    assert "command without wait       2.00" in text
    assert summary([]) == "no results"
