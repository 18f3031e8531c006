"""Fixtures of tests that have a database: an empty one, and folders that are no user's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.machine import keep_probes
from tilewright.db import Store, open_store


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests, in which this machine is known."""
    home = tmp_path_factory.mktemp("cache")
    keep_probes(home)
    return home


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or changes the user's data, caches or settings."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    for name in ("TILEWRIGHT_DB", "TILEWRIGHT_URL", "TILEWRIGHT_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with our tables and nothing in them. How it is made, tests of `db` look at."""
    path = tmp_path_factory.mktemp("empty") / "store.sqlite"
    open_store(str(path)).close()
    return path


@pytest.fixture
def store(tmp_path: Path, empty_file: Path) -> Iterator[Store]:
    path = tmp_path / "store.sqlite"
    shutil.copyfile(empty_file, path)
    path.chmod(empty_file.stat().st_mode)
    with open_store(str(path)) as store:
        yield store
