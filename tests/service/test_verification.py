"""`verify`: a wrong best is withdrawn, an old one that passes is renewed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.service.records import HOST, MATMUL, TOOLCHAIN, keep_best, make_record
from tilewright.db import open_store
from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers import verification
from tilewright.service.cli import run
from tilewright.service.jobs.tuning import register
from tilewright.service.resolve import workloads
from tilewright.tuner.machine.native_target import native_target

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


SMALLER, LARGER = "matmul:M=4,N=4,K=4", "matmul:M=16,N=8,K=8"


def many(path: str, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    """`verify --all` on the database of `path`; its document."""
    assert run(["verify", "--all", "--json", "--db", path, *words]) == code
    return json.loads(capsys.readouterr().out)


def test_all_that_waits_is_verified_and_the_same_command_again_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bests of another toolchain and imports, on this machine; not what is verified, nor what was
    made for another machine."""
    path, native = str(tmp_path / "db.sqlite"), native_target(probe=False)
    matmul, smaller, larger = map(workloads.workload_of, (MATMUL, SMALLER, LARGER))
    with open_store(path) as store:
        keep_best(store, matmul, native, toolchain=OLD)
        keep_best(store, matmul, HOST, toolchain=OLD)
        keep_best(store, larger, native)
        register(store, smaller, native)
        store.add([make_record(smaller, native, level="imported")])
    checked: list[str] = []

    def stop_after_one(workload: Workload, *_: object) -> MeasureResult:
        if checked:
            raise KeyboardInterrupt
        checked.append(workload.key)
        return OK

    monkeypatch.setattr(verification, "verify", stop_after_one)
    assert run(["verify", "--all", "--db", path]) == 130
    capsys.readouterr()
    assert checked == [matmul.key]
    found(monkeypatch, OK)
    document = many(path, capsys)
    assert (document["verified"], document["failed"]) == (1, 0)
    assert [work["workload_key"] for work in document["works"]] == [smaller.key]
    assert document["works"][0]["checks"][0]["renewed_as"]
    for spelled in (MATMUL, SMALLER):
        assert run(["best", spelled, "--db", path]) == 0
    capsys.readouterr()
    assert many(path, capsys) == {"verified": 0, "failed": 0, "works": []}


def test_one_that_fails_leaves_the_others_and_is_exit_code_6(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, native = str(tmp_path / "db.sqlite"), native_target(probe=False)
    matmul, smaller, larger = map(workloads.workload_of, (MATMUL, SMALLER, LARGER))
    with open_store(path) as store:
        keep_best(store, matmul, native, toolchain=OLD)
        keep_best(store, smaller, native, toolchain=OLD)
        keep_best(store, larger, native, toolchain=OLD, trace=[{"do": "Nonsense"}])

    def check(workload: Workload, *_: object) -> MeasureResult:
        wrong = MeasureResult(MeasureStatus.WRONG_RESULT, detail="element 3")
        return wrong if workload.key == matmul.key else OK

    monkeypatch.setattr(verification, "verify", check)
    document = many(path, capsys, code=6)
    assert (document["verified"], document["failed"]) == (1, 2)
    by_name = {work["name"]: work for work in document["works"]}
    assert by_name[MATMUL]["checks"][0]["withdrawn"]
    assert "Nonsense" in by_name[LARGER]["error"]
    assert by_name[SMALLER]["verified"]
    assert run(["verify", "--all", "--db", path]) == 6
    printed = capsys.readouterr()
    assert "[1/1] " in printed.err, "what is wrong waits no more"
    with open_store(path) as store:
        failed = store.full_checks(matmul.key, native.key).refusal([], TOOLCHAIN)
    assert str(failed) == "wrong_result: element 3"


def test_threads_and_targets_say_what_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, native = str(tmp_path / "db.sqlite"), native_target(probe=False)
    matmul = workloads.workload_of(MATMUL)
    (tmp_path / "host.json").write_text(json.dumps(HOST.to_json()))
    with open_store(path) as store:
        for target in (native, HOST, replace(HOST, threads=2)):
            keep_best(store, matmul, target, toolchain=OLD)
    found(monkeypatch, OK)
    there = ("--target", str(tmp_path / "host.json"))
    assert many(path, capsys, *there, "--threads", "2")["verified"] == 1
    assert many(path, capsys, *there)["verified"] == 1
    assert many(path, capsys)["verified"] == 1
    assert run(["verify", MATMUL, "--all", "--db", path]) == 2
    assert "--all has no WORKLOAD" in capsys.readouterr().err
    assert many(str(tmp_path / "none.sqlite"), capsys)["works"] == []


@pytest.mark.parametrize("imported", [False, True])
def test_best_names_the_command_that_would_do(
    imported: bool, words: list[str], workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(words[4]) as store:
        if imported:
            register(store, workload, HOST)
            store.add([make_record(workload, secs=s, trial=t, level="imported") for t, s in CLAIMS])
        else:
            keep_best(store, workload, toolchain=OLD)
    assert run(["best", *words[1:]]) == 3
    error = json.loads(capsys.readouterr().out)["error"]
    why = "2 imported records wait to be verified" if imported else "made by code generator"
    assert why in error["message"]
    assert f"`tilewright verify {MATMUL} --db" in error["advice"]
    assert "Tune it first" not in error["advice"]
