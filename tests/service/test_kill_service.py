"""The short form of `benchmarks/kill_service.py`: what was told survives every kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kill_service import run


def test_nothing_that_was_told_is_lost_by_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = run(kills=6, seed=1, db=str(tmp_path / "killed.sqlite"), folder=tmp_path)
    assert summary.problems == []
    assert set(summary.kills) == {"api", "worker", "both"}
    assert summary.told > 0
    assert len(capsys.readouterr().out.splitlines()) == 6
