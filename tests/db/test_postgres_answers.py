"""Answers over HTTP on PostgreSQL: the same as on SQLite, for several replicas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.support.postgres import PostgresServer
from tests.support.service.preparing import Counted, prepare_all
from tests.support.service.records import HOST, MATMUL, keep_best
from tilewright.db import Store, open_store
from tilewright.service.http.app import create_app
from tilewright.service.limits import RequestLimits
from tilewright.service.resolve import workloads
from tilewright.service.settings import Settings


@pytest.fixture
def stores(
    postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Store, Store]]:
    """Two replicas' connections to one database."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    url = postgres_server.fresh()
    with open_store(url) as one, open_store(url) as two:
        yield one, two


def test_replicas_give_the_same_answers_and_prepare_once(stores: tuple[Store, Store]) -> None:
    settings = Settings(preparers=0, limits=RequestLimits(default_secs=0.0, lookup_secs=0.0))
    counted, workload = Counted(), workloads.workload_of(MATMUL)
    body = {"workloads": [MATMUL], "target": HOST.to_json(), "min_grade": "default"}
    with (
        TestClient(create_app(settings, stores[0])) as first,
        TestClient(create_app(settings, stores[1])) as second,
    ):
        tickets = {
            api.post("/v1/best:lookup", json=body).json()["items"][0]["ticket"]
            for api in (first, second)
        }
        assert len(tickets) == 1
        assert prepare_all(stores[0], counted) == 2
        answers = [api.post("/v1/best:lookup", json=body).json() for api in (first, second)]
        assert answers[0] == answers[1]
        assert answers[0]["items"][0]["answer"]["verified"]
        assert set(counted.built_for.values()) == {1}

        path = f"/v1/best/{workload.key}/{HOST.key}"
        for trial in (1, 2):
            best = keep_best(stores[trial % 2], workload, secs=1e-3 / trial, trial=trial)
            for api in (first, second):
                assert api.get(path).json()["record_key"] == best.key
    assert stores[0].check() == []
