"""The tests of the database need no driver of PostgreSQL where they ask for no server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTEST = """
import sys
sys.modules["psycopg"] = None  # as if it were not installed
import pytest
sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[1:]]))
"""


def run(*words: str) -> str:
    """What pytest prints, where it succeeds."""
    done = subprocess.run(
        [sys.executable, "-c", PYTEST, *words],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:]
    return done.stdout


def test_tests_are_collected_without_psycopg() -> None:
    collected = run("--collect-only", "-q", "tests/db", "tests/upgrades")
    assert "tests/db/test_sqlite_store.py" in collected
    assert "tests/upgrades/test_old_databases.py" in collected
    assert "tests/db/test_postgres_store.py" not in collected


def test_a_test_that_asks_for_a_server_is_skipped_without_psycopg() -> None:
    test = "tests/db/test_durability.py::test_kill_at_random_moments_loses_nothing_acknowledged"
    assert "1 skipped" in run(f"{test}[postgres]")
