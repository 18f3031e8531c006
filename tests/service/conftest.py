"""Fixtures of the service's tests: an API over an empty database, nothing outside tmp_path."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from tests.support.own_store import cache_home, empty_file, own_folders, store
from tests.support.service.records import MATMUL
from tilewright.db import Store
from tilewright.schedules.workload.workload import Workload
from tilewright.service.http.app import create_app
from tilewright.service.limits import RequestLimits
from tilewright.service.resolve import workloads
from tilewright.service.settings import Settings

__all__ = ["cache_home", "empty_file", "own_folders", "store"]


@pytest.fixture
def settings() -> Settings:
    """No helper process is started, and nobody waits for what one would do."""
    limits = RequestLimits(default_secs=0.0, lookup_secs=0.0)
    return Settings(poll_secs=0.01, heartbeat_secs=0.05, preparers=0, limits=limits)


@pytest.fixture
def api(store: Store, settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings, store), raise_server_exceptions=True) as client:
        yield client


@pytest.fixture
def workload() -> Workload:
    return workloads.workload_of(MATMUL)
