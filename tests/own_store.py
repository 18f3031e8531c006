"""Fixtures of tests that have a database: an empty one, and folders that are no user's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from db import Store, open_store


@pytest.fixture(scope="session")
def cache_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests: this machine is detected once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, cache_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees or changes the user's data, caches or settings."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home))
    for name in ("TILEWRIGHT_DB", "TILEWRIGHT_URL", "TILEWRIGHT_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "store.sqlite")) as store:
        yield store
