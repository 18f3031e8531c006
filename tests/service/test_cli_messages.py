"""What the command line says where something is missing, empty, endless or interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.service.records import MATMUL
from tests.support.service.served import COMMAND
from tilewright.db import open_store
from tilewright.service.cli import run
from tilewright.service.problems import ADVICE_BY_CODE, documented_classes
from tilewright.service.units import clock


@pytest.mark.parametrize("words", [["best", MATMUL], ["db", "check"], ["tune", MATMUL], ["serve"]])
def test_an_empty_db_is_never_the_users_own(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*words, "--db", ""]) == 2
    assert "--db is empty" in capsys.readouterr().err


def test_a_mistyped_database_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typo = tmp_path / "typo.sqlite"
    assert run(["best", MATMUL, "--db", str(typo)]) == 3
    said = capsys.readouterr().err
    assert f"there is no database at {typo}" in said
    assert f"tilewright tune {MATMUL} --db {typo}" in said
    assert not typo.exists()


def test_a_miss_names_the_command_that_mends_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = str(tmp_path / "store.sqlite")
    open_store(db).close()
    assert run(["best", MATMUL, "--db", db]) == 3
    assert f"`tilewright tune {MATMUL} --db {db}`" in capsys.readouterr().err


@pytest.mark.parametrize("secs", [1e6, 1e21])
def test_a_time_left_beyond_all_patience_is_not_spelled_out(secs: float) -> None:
    assert clock(secs) == "over 4 days"


def test_no_advice_only_points_at_itself() -> None:
    advice = [cls.advice for cls in documented_classes()] + list(ADVICE_BY_CODE.values())
    assert not [text for text in advice if text.lower().startswith("see the message")]


def test_sigterm_ends_tune_with_the_best_so_far(tmp_path: Path) -> None:
    (tmp_path / "slow.json").write_text('{"latency_secs": 0.05}')
    db = str(tmp_path / "store.sqlite")
    words = ["tune", MATMUL, "--trials", "500", "--db", db, "--strategy", "random", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *words, "--measurer", f"simulated:{tmp_path}/slow.json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not os.path.exists(db) or not _records(db):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    report, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(report)["best"]["verified"]
    assert f"tilewright tune {MATMUL}" in told


def _records(db: str) -> int:
    with open_store(db) as store:
        return store.counts().records


@pytest.mark.parametrize("name", ["TILEWRIGHT_PORT", "TILEWRIGHT_HOST"])
def test_serve_listens_where_the_environment_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, {"TILEWRIGHT_PORT": "99999", "TILEWRIGHT_HOST": "0.0.0.0"}[name])
    assert run(["serve", "--db", str(tmp_path / "x.sqlite")]) != 0
    said = capsys.readouterr().err
    assert name in said or "0.0.0.0" in said
