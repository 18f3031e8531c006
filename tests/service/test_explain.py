"""`explain` as typed, on a simulated machine, and the page of the record afterwards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tilewright.db import open_store
from tilewright.schedules.record import MeasureResult, MeasureStatus
from tilewright.service.cli import run
from tilewright.service.http.app import create_app
from tilewright.service.resolve import workloads
from tilewright.service.settings import Settings
from tilewright.tuner.measure.mocked.simulated import SimulatedMeasurer

MATMUL = "matmul:M=64,N=64,K=64"
STEP = {
    "step", "undone", "knob", "also", "status", "detail",
    "run_secs", "slower_by", "slower_low", "slower_high",
}  # fmt: skip


@pytest.fixture
def where(tmp_path: Path) -> list[str]:
    (tmp_path / "machine.json").write_text('{"seed": 5}')
    machine = f"simulated:{tmp_path / 'machine.json'}"
    return ["--db", str(tmp_path / "explain.sqlite"), "--measurer", machine]


@pytest.fixture
def best(where: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The key of the best of a search."""
    assert run(["tune", MATMUL, "--trials", "16", "--json", *where]) == 0
    return str(json.loads(capsys.readouterr().out)["best"]["record_key"])


def explained(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["explain", MATMUL, "--json", *words]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_best_is_explained_and_the_result_is_kept_with_the_record(
    where: list[str], best: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = explained(where, capsys)
    assert found["best"]["record_key"] == best
    assert found["best"]["bound"] == found["bound"]["binds"]
    assert 0 < found["best"]["fraction_of_bound"] <= 1
    assert found["mocked"]
    assert found["steps"]
    assert all(set(step) == STEP for step in found["steps"])
    with open_store(where[1]) as store:
        assert store.explanation(best) == found
        assert store.check() == []
    again = explained([*where, "--record", best], capsys)
    for document in (found, again):
        del document["created_at"]
        del document["best"]["grade"]
    assert again == found, "the same machine gives the same answer"
    assert run(["explain", MATMUL, *where]) == 0
    text = capsys.readouterr().out
    assert found["steps"][0]["step"] in text
    assert f"{found['steps'][0]['slower_by']:.2f}x" in text
    assert "-bound)" in text
    assert "timings are mocked" in text


def test_the_page_of_a_record_shows_its_explanation(
    where: list[str], best: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(where[1]) as store, TestClient(create_app(Settings(), store)) as pages:
        before = pages.get(f"/records/{best}").text
        assert "Not measured yet" in before
        assert "<code>tilewright explain</code>" in before
        record, tag = pages.get(f"/v1/records/{best}"), pages.get(f"/v1/records/{best}").headers
        found = explained(where, capsys)
        text = pages.get(f"/records/{best}").text
        for step in found["steps"]:
            assert step["step"] in text
            assert f"{step['slower_by']:.2f}×" in text
        assert "What each choice saves" in text
        after = pages.get(f"/v1/records/{best}")
        assert after.json() == record.json(), "a record that has files never changes"
        assert after.headers["etag"] == tag["etag"]


def test_without_a_stored_schedule_the_default_is_explained_only_on_request(
    where: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["explain", MATMUL, *where]) == 3
    told = capsys.readouterr().err
    assert "no exact answer stored" in told
    assert "`tilewright tune matmul:M=64,N=64,K=64" in told
    found = explained([*where, "--min-grade", "default"], capsys)
    assert found["best"]["record_key"] is None
    assert found["by_setting"]
    assert found["steps"]


def test_a_schedule_that_fails_is_exit_code_6_and_nothing_is_stored(
    where: list[str],
    best: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = MeasureResult(MeasureStatus.WRONG_RESULT, detail="element 3")
    monkeypatch.setattr(SimulatedMeasurer, "_run", lambda *_: wrong)
    assert run(["explain", MATMUL, "--json", *where]) == 6
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"] == "the schedule itself failed: wrong_result: element 3"
    with open_store(where[1]) as store:
        assert store.explanation(best) is None


def test_variants_that_fail_do_not_end_the_command(
    tmp_path: Path, where: list[str], best: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.json").write_text('{"seed": 5, "failure_rates": {"run_crash": 0.5}}')
    measured = SimulatedMeasurer.measure

    def only_variants(self: SimulatedMeasurer, requests: Any, on_result: Any = None) -> Any:
        results = measured(self, requests, on_result)
        good = MeasureResult(MeasureStatus.OK, (1e-3,), 1e-3)
        return [
            good if request.trial == 1 else result
            for request, result in zip(requests, results, strict=True)
        ]

    where[-1] = f"simulated:{tmp_path / 'bad.json'}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedMeasurer, "measure", only_variants)
        found = explained([*where, "--record", best], capsys)
        assert run(["explain", MATMUL, "--record", best, *where]) == 0
    failed = [step for step in found["steps"] if step["status"] == "run_crash"]
    assert failed
    assert found["steps"][-len(failed) :] == failed
    assert failed[0]["detail"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "give one workload"),
        ([MATMUL, "--record", "sha256:00"], 3, "no record sha256:00"),
        ([MATMUL, "--measurer", "dice"], 2, "measurer must be local"),
        (["matmol:M=1"], 2, "did you mean matmul"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    code: int,
    says: str,
    where: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = ["explain", *where, *words]
    assert run(asked) == code
    assert says in capsys.readouterr().err.splitlines()[0]


def test_a_record_of_another_workload_is_refused(
    where: list[str], best: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert workloads.workload_of(MATMUL).key != workloads.workload_of("matmul:M=8,N=8,K=8").key
    assert run(["explain", "matmul:M=8,N=8,K=8", "--record", best, *where]) == 2
    assert "is of another workload" in capsys.readouterr().err
