"""The winner's files: built once, kept under its record, never a reason to lose a result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.service.records import HOST, MATMUL, keep_best
from tilewright.db import Store, open_store
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.primitives.loops import Split
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers import objects, publish
from tilewright.service.answers.links import links
from tilewright.service.cli import run
from tilewright.tuner.emit.variant import Variant


def test_the_files_of_a_record_are_built_once(
    store: Store, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = keep_best(store, workload).key
    first = publish.publish(store, workload, HOST, key, Trace())
    assert set(first.files) == publish.KINDS
    assert first.files == links(store.artefacts(key))
    header = store.blob(first.files["header"]["key"].removeprefix("sha256:"))
    assert header is not None
    assert key.encode() in header.data
    monkeypatch.setattr(objects, "build", None)
    assert publish.publish(store, workload, HOST, key, Trace()) == first


def test_what_cannot_be_built_is_a_warning(
    store: Store, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object, **__: object) -> None:
        raise ScheduleError("split(i, 8)", "there is no axis i")

    key = keep_best(store, workload).key
    monkeypatch.setattr(objects, "build", build)
    published = publish.publish(store, workload, HOST, key, Trace())
    assert published.files == {}
    assert published.warning == (
        "the best is stored, its object file is not: split(i, 8): there is no axis i"
    )


def test_a_bug_of_ours_is_not_a_warning(
    store: Store, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object, **__: object) -> None:
        raise ZeroDivisionError("ours")

    key = keep_best(store, workload).key
    monkeypatch.setattr(objects, "build", build)
    with pytest.raises(ZeroDivisionError, match="ours"):
        publish.publish(store, workload, HOST, key, Trace())


def test_files_built_ahead_are_those_that_publishing_builds(
    store: Store, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = keep_best(store, workload).key
    usual = publish.built_files(workload, Variant(HOST.cpu, Trace(), HOST, key))
    with publish.BuildAhead(workload, HOST) as ahead:
        ahead.begin(Trace())
        monkeypatch.setattr(objects, "build", None)
        published = ahead(store, workload, HOST, key, Trace())
    assert not published.warning
    assert {kind: file["key"] for kind, file in published.files.items()} == {
        file.kind: f"sha256:{file.sha256}" for file in usual
    }


def test_another_schedule_than_the_one_built_ahead_is_built(
    store: Store, workload: Workload
) -> None:
    key = keep_best(store, workload).key
    with publish.BuildAhead(workload, HOST) as ahead:
        ahead.begin(Trace((Split("i", 2),)))
        published = ahead(store, workload, HOST, key, Trace())
    usual = publish.built_files(workload, Variant(HOST.cpu, Trace(), HOST, key))
    assert {kind: file["key"] for kind, file in published.files.items()} == {
        file.kind: f"sha256:{file.sha256}" for file in usual
    }


def test_a_failure_to_build_ahead_is_found_again(
    store: Store, workload: Workload, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object, **__: object) -> None:
        raise ScheduleError("split(i, 8)", "there is no axis i")

    key = keep_best(store, workload).key
    with publish.BuildAhead(workload, HOST) as ahead:
        monkeypatch.setattr(objects, "emitted", build)
        ahead.begin(Trace())
        published = ahead(store, workload, HOST, key, Trace())
    assert "there is no axis i" in published.warning


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """What follows the command: a small machine that does not exist, a database, JSON."""
    (tmp_path / "target.json").write_text(json.dumps(HOST.to_json()))
    return [
        MATMUL, "--json", "--db", str(tmp_path / "db.sqlite"),
        "--target", str(tmp_path / "target.json"),
    ]  # fmt: skip


@pytest.fixture
def machine(tmp_path: Path) -> str:
    (tmp_path / "machine.json").write_text("{}")
    return f"simulated:{tmp_path}/machine.json"


def test_tune_keeps_the_files_and_best_names_them(
    words: list[str], machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["tune", *words, "--trials", "4", "--measurer", machine]) == 0
    tuned = json.loads(capsys.readouterr().out)
    assert tuned["warning"] == ""
    assert run(["best", *words]) == 0
    best = json.loads(capsys.readouterr().out)
    assert best["record_key"] == tuned["best"]["record_key"]
    assert best["artefacts"] == tuned["artefacts"]
    with open_store(words[3]) as store:
        blob = store.blob(best["artefacts"]["object"]["key"].removeprefix("sha256:"))
    assert blob is not None
    assert blob.data[:4] == b"\x7fELF"


def test_tune_succeeds_where_the_files_cannot_be_kept(
    words: list[str],
    machine: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def build(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(objects, "build", build)
    assert run(["tune", *words, "--trials", "4", "--measurer", machine]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["artefacts"] == {}
    assert "its object file is not: [Errno 28] No space left on device" in said.err
