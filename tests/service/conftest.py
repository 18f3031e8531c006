"""Fixtures of the service's tests: an API over an empty database, nothing outside tmp_path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from db import Store, open_store
from schedules.workload import Workload
from service.http.app import create_app
from service.limits import Limits
from service.resolve import workloads
from service.settings import Settings
from tests.service.service_cases import MATMUL


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


@pytest.fixture
def settings() -> Settings:
    """No helper process is started, and nobody waits for what one would do."""
    limits = Limits(default_secs=0.0, lookup_secs=0.0)
    return Settings(poll_secs=0.01, heartbeat_secs=0.05, preparers=0, limits=limits)


@pytest.fixture
def api(store: Store, settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings, store), raise_server_exceptions=True) as client:
        yield client


@pytest.fixture
def workload() -> Workload:
    return workloads.workload_of(MATMUL)
