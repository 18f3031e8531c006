"""`export` by what is asked for, and `db backup`, `db prune`, `db move` as typed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.postgres import PostgresServer
from tests.support.service.records import HOST, MATMUL, TOOLCHAIN, keep_best
from tilewright.db import open_store
from tilewright.schedules.workload.workload import Workload
from tilewright.service.cli import run


@pytest.fixture
def db(tmp_path: Path, workload: Workload) -> str:
    path = str(tmp_path / "kept.sqlite")
    with open_store(path) as store:
        keep_best(store, workload)
    return path


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run([*words, "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_what_is_exported_can_be_chosen(
    db: str, tmp_path: Path, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "target.json").write_text(json.dumps(HOST.to_json()))
    for number, (chosen, count) in enumerate(
        (
            ([], 1),
            (["--workload", MATMUL], 1),
            (["--workload", workload.key], 1),
            (["--workload", "matmul:M=3,N=3,K=3"], 0),
            (["--target", str(tmp_path / "target.json")], 1),
            (["--target", HOST.key, "--workload", MATMUL, "--state", "best"], 1),
            (["--target", "0" * 64], 0),
            (["--state", "imported"], 0),
        )
    ):
        file = str(tmp_path / f"{number}.jsonl")
        assert told(["export", file, *chosen, "--db", db], capsys)["records"] == count, chosen
    for wrong in (["--workload", "nothing"], ["--state", "odd"], ["--target", "none.json"]):
        assert run(["export", *wrong, "--db", db]) == 2
        assert len(capsys.readouterr().err.splitlines()) <= 6


def test_a_backup_is_a_database(
    db: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "backup.sqlite")
    assert told(["db", "backup", file, "--db", db], capsys)["bytes"] > 0
    assert told(["db", "check", "--db", file], capsys)["records"] == 1
    assert run(["db", "backup", file, "--db", db]) == 4
    assert "exists already" in capsys.readouterr().err


def test_what_an_upgrade_made_slower_is_listed(
    db: str, workload: Workload, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["db", "upgraded", "--db", db]) == 0
    assert "nothing became slower" in capsys.readouterr().out
    with open_store(db) as store:
        keep_best(store, workload, secs=2e-3, toolchain=replace(TOOLCHAIN, codegen_version=10**6))
    [slower] = told(["db", "upgraded", "--db", db], capsys)["slower"]
    assert slower["workload"] == MATMUL
    assert slower["slower_by"] == 2.0
    assert (slower["before"]["run_secs"], slower["after"]["run_secs"]) == (1e-3, 2e-3)
    assert slower["after"]["toolchain"]["codegen_version"] == 10**6
    assert slower["best_run_secs"] == 2e-3
    assert run(["db", "upgraded", "--db", db]) == 0
    text = capsys.readouterr().out
    assert "2.00x" in text
    assert "1000000, LLVM" in " ".join(text.split())


def test_a_database_is_not_moved_onto_itself(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["db", "move", db, "--db", db]) == 4
    assert "cannot be moved to itself" in capsys.readouterr().err


def test_what_nobody_points_to_is_counted_and_deleted(
    db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--dry-run"], []):
        found = told(["db", "prune", *words, "--db", db], capsys)
        assert (found["blobs"], found["workloads"], found["dry_run"]) == (0, 0, bool(words))


def test_a_database_moves_to_a_server_and_back(
    db: str,
    tmp_path: Path,
    postgres_server: PostgresServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    url = postgres_server.empty()
    moved = told(["db", "move", url, "--db", db], capsys)
    assert moved["rows"]["record"] == 1
    assert "postgres@" not in moved["to"]
    assert told(["db", "check", "--db", url], capsys)["ok"]
    assert told(["export", str(tmp_path / "1"), "--db", url], capsys)["records"] == 1
    assert run(["db", "move", url, "--db", db]) == 4
    assert "name an empty database" in capsys.readouterr().err
    assert told(["db", "move", db + "2", "--db", url], capsys)["rows"] == moved["rows"]
    assert told(["export", str(tmp_path / "2"), "--db", db + "2"], capsys)["records"] == 1
    assert (tmp_path / "1").read_text() == (tmp_path / "2").read_text()


def test_stats_say_how_much_there_is_of_what_and_for_whom(
    db: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_store(db) as store:
        store.create_job({"budget": {"trials": 1}}, body_hash="b", flight_key="f", owner="ann")
    document = told(["db", "stats", "--db", db], capsys)
    assert document["tables"]["record"]["rows"] == 1
    assert document["tables"]["record"]["oldest"].endswith("Z")
    assert document["records"] == {"ok": 1}
    assert document["owners"]["ann"]["open_jobs"] == 1
    assert 0 < document["used_bytes"] <= document["disk_bytes"]
    assert run(["db", "stats", "--db", db]) == 0
    shown = capsys.readouterr().out
    for words in ("in use", "record", "ann", "1 QUEUED"):
        assert words in shown


def test_how_old_is_pruned_can_be_said(db: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(["db", "prune", "--db", db, "--older-than", "2w"], capsys)["preparations"] == 0
    assert run(["db", "prune", "--db", db, "--older-than", "soon"]) == 2
    assert "a length of time such as 90d" in capsys.readouterr().err
