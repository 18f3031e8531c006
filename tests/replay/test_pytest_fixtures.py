"""The fixtures other projects get: tuning with mocked timings, as `docs/mocked_timings.md` says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.schedules.spelling import parse_workload
from tilewright.tuner.testing import MockedTuner, mocked_target
from tilewright.tuner.tuning import tune


def test_a_simulated_run_gives_a_verified_best(tilewright_simulated: MockedTuner) -> None:
    report = tilewright_simulated.tune("matmul:M=64,N=64,K=64", trials=16)
    assert report.best is not None
    assert report.best.verified
    assert report.trials["total"] == 16
    assert report.target["key"] == mocked_target().key


def test_failures_are_counted(tilewright_simulated: MockedTuner) -> None:
    tilewright_simulated.use({"failure_rates": {"run_crash": 0.3}, "seed": 4})
    report = tilewright_simulated.tune("matmul:M=64,N=64,K=64", trials=16)
    assert 0 < report.trials["by_status"]["run_crash"] < 16


def test_a_second_run_in_one_test_resumes(tilewright_simulated: MockedTuner) -> None:
    tilewright_simulated.tune("matmul:M=32,N=32,K=32", trials=8)
    report = tilewright_simulated.tune("matmul:M=32,N=32,K=32", trials=12)
    assert report.trials["measured_now"] == 4


def test_recorded_timings_replay(
    tilewright_simulated: MockedTuner, tilewright_replay: MockedTuner, tmp_path: Path
) -> None:
    spelled = "matmul:M=48,N=32,K=16"
    first = tilewright_simulated.tune(spelled, trials=12)
    key = parse_workload(spelled).key
    file = tmp_path / "timings.jsonl"
    records = tilewright_simulated.sink.records(key, mocked_target().key)
    file.write_text("".join(json.dumps(r.to_json()) + "\n" for r in records))
    again = tilewright_replay.use(file).tune(spelled, trials=12)
    assert again.best is not None
    assert first.best is not None
    assert again.best.trace == first.best.trace


def test_replaying_without_a_file_fails_with_the_way_out(tilewright_replay: MockedTuner) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"call tilewright_replay\.use\(FILE\)"):
        tilewright_replay.tune("matmul:M=8,N=8,K=8")


def test_a_machine_from_a_file(tilewright_simulated: MockedTuner, tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text('{"seed": 9}')
    report = tilewright_simulated.use(file).tune("matmul:M=16,N=16,K=16", trials=6)
    assert report.best is not None


def test_tune_takes_a_measurer_by_name(tmp_path: Path) -> None:
    file = tmp_path / "machine.json"
    file.write_text("{}")
    workload = parse_workload("matmul:M=16,N=16,K=16")
    told: list[int] = []
    report = tune(
        workload, mocked_target(), strategy="random", measurer=f"simulated:{file}",
        on_event=lambda event: told.append(event.trial),
    )  # fmt: skip
    assert told == list(range(1, report.trials["total"] + 1))
    assert report.strategy == "random"
