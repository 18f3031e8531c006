"""`verify`: a wrong best is withdrawn, an old one that passes is renewed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from db import open_store
from schedules.record import MeasureResult, MeasureStatus, Toolchain
from schedules.workload.workload import Workload
from service.answers import verification
from service.cli import run
from service.jobs.tuning import register
from tests.service.service_cases import HOST, MATMUL, TOOLCHAIN, keep_best, make_record

OLD = Toolchain(TOOLCHAIN.codegen_version, "0.1.0", "1.0.0")
CLAIMS = ((1, 2e-3), (2, 1e-3))
OK = MeasureResult(MeasureStatus.OK, (3e-3,), 3e-3, verify_secs=0.1)


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "target.json").write_text(json.dumps(HOST.to_json()))
    return [
        "verify", MATMUL, "--json", "--db", str(tmp_path / "db.sqlite"),
        "--target", str(tmp_path / "target.json"),
    ]  # fmt: skip


def found(monkeypatch: pytest.MonkeyPatch, result: MeasureResult) -> None:
    """Stands in for rebuilding and running."""
    monkeypatch.setattr(verification, "verify", lambda *_: result)


def test_a_best_that_passes_stays(
    words: list[str],
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_store(words[4]) as store:
        record = keep_best(store, workload)
    found(monkeypatch, OK)
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verified"]
    assert document["record_key"] == record.key
    assert document["renewed_as"] is None


@pytest.mark.parametrize(
    ("status", "withdrawn"),
    [
        (MeasureStatus.WRONG_RESULT, True),
        (MeasureStatus.OUT_OF_BOUNDS, True),
        (MeasureStatus.RUN_TIMEOUT, False),
        (MeasureStatus.LOST, False),
    ],
)
def test_a_best_that_fails_is_exit_code_6_and_withdrawn_only_if_it_is_wrong(
    status: MeasureStatus,
    withdrawn: bool,
    words: list[str],
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_store(words[4]) as store:
        worse = keep_best(store, workload, secs=2e-3, trace=[{"do": "Unroll", "loop": "s0.d0"}])
        best = keep_best(store, workload, secs=1e-3, trial=2)
    found(monkeypatch, MeasureResult(status, detail="element 3"))
    assert run(words) == 6
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "verification_failed"
    assert f"{best.key}: {status}: element 3" in error["message"]
    assert ("withdrawn" in error["message"]) is withdrawn
    with open_store(words[4]) as store:
        now = store.best(workload.key, HOST.key)
    assert now is not None
    assert now.key == (worse if withdrawn else best).key


@pytest.mark.parametrize("made_by", [OLD, Toolchain(0, "simulated", "abc")])
def test_another_toolchains_best_that_passes_is_stored_as_our_own(
    made_by: Toolchain,
    words: list[str],
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_store(words[4]) as store:
        old = keep_best(store, workload, toolchain=made_by)
    found(monkeypatch, OK)
    assert run(words) == 0
    renewed = json.loads(capsys.readouterr().out)["renewed_as"]
    assert renewed not in (None, old.key)
    assert run(["best", *words[1:]]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["record_key"] == renewed
    assert answer["grade"] == "exact"
    assert answer["verified"]
    assert answer["run_secs"] == 3e-3


def test_what_was_imported_is_checked_where_there_is_no_best(
    words: list[str],
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_store(words[4]) as store:
        register(store, workload, HOST)
        store.add([make_record(workload, secs=s, trial=t, level="imported") for t, s in CLAIMS])
    assert run(["best", *words[1:]]) == 3
    capsys.readouterr()
    found(monkeypatch, OK)
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["record_key"] == make_record(workload, secs=1e-3, trial=2, level="imported").key
    assert run(["best", *words[1:]]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["grade"], answer["verified"]) == ("exact", True)
    assert answer["run_secs"] == 3e-3, "as timed here, not as claimed"


def test_without_any_record_there_is_nothing_to_verify(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 3
    assert "tilewright tune" in json.loads(capsys.readouterr().out)["error"]["advice"]
