"""The short form of `benchmarks/kill_service.py`: what was told survives every kill."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.kill_service import PARTS, run

if TYPE_CHECKING:
    from tests.support.postgres import PostgresServer


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_nothing_that_was_told_is_lost_by_kills(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    db = str(tmp_path / "killed.sqlite")
    if kind == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        db = server.fresh()
    summary = run(kills=3, seed=1, db=db, folder=tmp_path)
    assert summary.problems == []
    assert set(summary.kills) == set(PARTS)
    assert summary.told > 0
