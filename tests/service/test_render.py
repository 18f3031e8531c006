"""What people read: units, progress lines, tables."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from tests.support.golden_text import Golden
from tilewright.service import units
from tilewright.service.cli import render
from tilewright.service.cli.facts import answer_rows, plain
from tilewright.service.cli.render_explanation import explanation_table


def shown(thing: Any) -> str:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(thing)
    text = console.export_text()
    console.file.close()
    return text


@pytest.mark.parametrize(
    ("secs", "text"),
    [(None, "-"), (2.0, "2 s"), (1.034e-3, "1.03 ms"), (5.43e-6, "5.43 us"), (8e-9, "8 ns")],
)
def test_durations(secs: float | None, text: str) -> None:
    assert units.duration(secs) == text


@pytest.mark.parametrize(
    ("secs", "text"), [(None, "-:--"), (0.2, "0:00"), (130, "2:10"), (3661, "1:01:01")]
)
def test_clocks(secs: float | None, text: str) -> None:
    assert units.clock(secs) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(8, "8 B"), (32768, "32 KiB"), (1023 * 1024, "1023 KiB"), (3 << 40, "3072 GiB")],
)
def test_byte_sizes(count: int, text: str) -> None:
    assert units.byte_size(count) == text


@pytest.mark.parametrize(("count", "text"), [(12, "12"), (310_000, "310k"), (268_435_456, "268M")])
def test_quantities(count: int, text: str) -> None:
    assert units.quantity(count) == text


def test_speed_is_a_time_where_there_is_nothing_to_count() -> None:
    assert units.speed(2e9, 1e-2) == "200 GFLOP/s"
    assert units.speed(0, 1e-2) == "10 ms"


def event(status: str, best: float | None) -> dict[str, Any]:
    return {
        "trial": 3,
        "of_trials": 64,
        "result": {
            "status": status,
            "run_secs_estimate": 1e-3 if status == "ok" else None,
            "detail": "" if status == "ok" else "element 7",
        },
        "is_best": status == "ok",
        "best_run_secs": best,
        "fraction_of_bound": 0.5 if best else None,
        "eta_secs": 65.0,
    }


def test_a_trial_is_one_line() -> None:
    assert render.trial_line(event("ok", 1e-3), 2e6) == (
        "trial 3/64  2 GFLOP/s  <- best  (best 2 GFLOP/s, 50% of the bound, ETA 1:05)"
    )
    assert render.trial_line(event("wrong_result", None), 2e6) == (
        "trial 3/64  wrong_result: element 7  (best none yet, ETA 1:05)"
    )


def report(best: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "workload": {"name": "mm", "key": "k", "flops": 2e6},
        "target": {"cpu": "znver3", "threads": 2},
        "trials": {
            "total": 5,
            "ok": 2,
            "by_status": {"ok": 2, "run_timeout": 1, "wrong_result": 2},
        },
        "space_size": 310_000,
        "wall_secs": 4.1,
        "wall_secs_by_phase": {"propose": 1.0, "compile": 3.0, "verify": 0.0},
        "stopped_because": "enough",
        "best": best,
        "default": {"run_secs": 2e-3, "gflops": 1.0},
    }


def test_a_summary_of_a_job_names_no_command_for_the_local_database() -> None:
    best = {"run_secs": 1e-3, "fraction_of_bound": 0.9, "bound": "compute", "verified": True}
    text = shown(render.tune_summary(report(best), again=None))
    assert "stored by the service" in text
    assert "tilewright show" not in text


def test_a_summary_tells_the_best_and_what_failed() -> None:
    best = {"run_secs": 1e-3, "fraction_of_bound": 0.9, "bound": "compute", "verified": True}
    text = shown(render.tune_summary(report(best), again="mm"))
    for words in (
        "znver3, 2 threads",
        "1 ms, 2 GFLOP/s",
        "fraction of bound     90% (compute-bound)",
        "speedup over default  2.00x",
        "5 (2 ok; 2 wrong_result, 1 run_timeout)",
        "310k schedules",
        "compile 3 s, propose 1 s",
        "tilewright show mm",
    ):
        assert words in text
    assert "verify 0" not in text


def test_a_summary_tells_what_was_learned_about_the_bound() -> None:
    best = {"run_secs": 1e-3, "fraction_of_bound": 1.0, "bound": "compute", "verified": True}
    learned = {"bound": {"notes": ["raised to what the best kernel shows"]}}
    text = shown(render.tune_summary({**report(best), **learned}, again="mm"))
    assert "raised to what the best kernel shows" in text


def test_a_summary_names_the_sketches_that_were_not_searched() -> None:
    dropped = {"dropped_sketches": [{"name": "rows+tile", "reason": "Prefetch: too many"}]}
    text = shown(render.tune_summary({**report(None), **dropped}, again="mm"))
    assert "sketch rows+tile: Prefetch: too many" in text


def test_a_summary_of_mocked_timings_claims_no_check() -> None:
    best = {"run_secs": 1e-3, "fraction_of_bound": 0.9, "bound": "compute", "verified": True}
    text = shown(render.tune_summary(report(best), again="mm", mocked=True))
    assert "no: timings are mocked" in text
    assert "rebuilt" not in text


def test_a_summary_says_when_the_prior_was_found_wrong() -> None:
    for trust, gain, said in (
        (0.01, 1.4, True),
        (0.01, 1.02, False),  # nothing to tell apart is no proof
        (0.01, None, False),
        (0.9, 1.4, False),
        (None, None, False),
    ):
        found = {"prior_trust": trust, "gain_over_prior": gain}
        document = {**report(None), "cost_model": found}
        text = shown(render.tune_summary(document, again="mm"))
        assert ("wrong for this machine" in text) is said


def test_a_summary_without_a_best_says_so() -> None:
    text = shown(render.tune_summary(report(None), again="mm"))
    assert "none: no candidate passed" in text
    assert "tilewright show" not in text


def test_a_peer_that_could_not_take_part_says_why() -> None:
    document = {
        "kernel": {"run_secs": 1e-3},
        "against": {
            "numpy": {"run_secs": 2e-3, "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1},
            "torch": {"run_secs": None, "detail": "not installed"},
        },
    }
    text = shown(render.bench_table(document, 2e6))
    assert "2.00x (1.90 to 2.10)" in text
    assert "not installed" in text


def test_a_peer_says_how_it_was_asked_and_what_it_uses() -> None:
    libraries = {"numpy": "2.4.6", "blas": "OpenBLAS 0.3.31", "core": "SkylakeX"}
    numpy = {
        "run_secs": 2e-3, "speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1,
        "way": "np.dot", "libraries": libraries,
    }  # fmt: skip
    document = {"kernel": {"run_secs": 1e-3}, "against": {"numpy": numpy}}
    text = shown(render.bench_table(document, 2e6))
    assert "np.dot" in text
    assert "NumPy 2.4.6, OpenBLAS 0.3.31 with SkylakeX kernels" in text


def test_names_with_brackets_are_printed_as_they_are() -> None:
    name = "C[i,j] += A[i,k] * B[k,j]"
    document = {
        "workload": {"name": name, "key": "k", "flops": 0},
        "grade": "exact",
        "run_secs": None,
        "note": "",
    }
    assert name in plain(answer_rows(document))
    assert name in shown(render.facts(answer_rows(document)))
    job = {"id": "1", "state": "QUEUED", "done": False, "workload": {"name": name, "flops": 0}}
    assert name in shown(render.jobs_table([job]))


def test_an_explanation(golden: Golden) -> None:
    def step(name: str, undone: str, *ratios: float, **more: Any) -> dict[str, Any]:
        by, low, high = ratios or (None, None, None)
        return {
            "step": name, "undone": undone, "also": [], "status": "ok", "detail": "",
            "run_secs": by and by * 1.44e-4, "slower_by": by, "slower_low": low,
            "slower_high": high, **more,
        }  # fmt: skip

    document = {
        "workload": {"name": "matmul:M=256,N=256,K=256", "flops": 2 * 256**3},
        "target": {"cpu": "znver5", "threads": 2},
        "best": {"record_key": "sha256:0123", "run_secs": 1.44e-4},
        "bound": {
            "secs": 1.36e-4, "binds": "compute", "fraction": 0.94, "notes": [],
            "predicted_secs": {"arithmetic": 1.36e-4, "L2 bandwidth": 7.6e-5, "load ports": 6e-5,
                               "packing": 1e-6},
        },
        "steps": [
            step("tile rows: 6", "1", 3.19, 2.98, 3.53, also=["tile vectors: 5 instead of 4"]),
            step("pack columns: in each call", "no", 1.08, 1.01, 1.13),
            step("unrolled reduction steps: 4", "1", 0.97, 0.95, 0.98),
            step("threads: divide one loop", "one", status="run_timeout", detail="took 2 s"),
        ],
        "rounds": 8, "left_out": 3, "by_setting": True, "mocked": False,
    }  # fmt: skip
    text = shown(explanation_table(document))
    assert "\n".join(line.rstrip() for line in text.splitlines()) == golden
