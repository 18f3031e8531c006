"""What one owner may have prepared, and what the database may hold."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service.access import bearer, make_key
from tests.support.service.records import HOST, MATMUL, keep_best
from tests.support.service.requests import LOOKUP_LIMITS, job, look_up
from tilewright.db import Store
from tilewright.db.errors import StoreFull
from tilewright.db.values.answers import PreparationState
from tilewright.db.values.records import ArtefactFile
from tilewright.service.http.app import create_app
from tilewright.service.http.deps import NDJSON
from tilewright.service.jobs import tuning
from tilewright.service.limits import RequestLimits
from tilewright.service.resolve import toolchains, workloads
from tilewright.service.resolve.toolchains import toolchain_name
from tilewright.service.settings import Settings


def test_one_owner_s_preparations_leave_room_and_turns_for_others(store: Store) -> None:
    mine, theirs = bearer(make_key(store)), bearer(make_key(store))
    limits = {**LOOKUP_LIMITS, "owner_preparations": 3}
    settings = Settings(limits=replace(RequestLimits(), **limits), preparers=0)

    def codes(key: dict[str, str], *numbers: int) -> list[tuple[bool, str]]:
        body = {
            "workloads": [f"matmul:M=8,N=8,K={n}" for n in numbers],
            "target": "native",
            "min_grade": "default",
        }
        items = api.post("/v1/best:lookup", json=body, headers=key).json()["items"]
        return [(item["pending"], item["problem"]["code"]) for item in items]

    with TestClient(create_app(settings, store)) as api:
        assert codes(mine, *range(1, 6)) == [(True, "answer_pending")] * 5
        toolchain = toolchain_name(toolchains.toolchain())
        assert store.preparations_waiting(toolchain) == 3, "the others are taken when asked again"
        assert codes(theirs, 9, 10) == [(True, "answer_pending")] * 2
        assert store.preparations_waiting(toolchain) == 5
        first = [store.claim_preparation(toolchain, "process") for _ in range(4)]
        prepared = [one.workload_key for one in first if one is not None]
        of_theirs = {workloads.workload_of(f"matmul:M=8,N=8,K={n}").key for n in (9, 10)}
        assert [key in of_theirs for key in prepared] == [False, True, False, True]


def test_above_its_limit_the_database_takes_nothing_more_and_answers_go_on(store: Store) -> None:
    workload = workloads.workload_of(MATMUL)
    record = keep_best(store, workload)
    settings = Settings(
        limits=replace(RequestLimits(), **LOOKUP_LIMITS), preparers=0, database_bytes=1
    )
    with TestClient(create_app(settings, store)) as api:
        found = api.get(f"/v1/best/{workload.key}/{HOST.key}")
        assert found.json()["record_key"] == record.key
        asked = [
            api.post("/v1/jobs", json=job(8)),
            api.post("/v1/builds", json={"name": "gemm", "workload": MATMUL}),
            api.post("/v1/records", content=b"{}", headers={"Content-Type": NDJSON}),
            api.post("/jobs", data={"workload": "matmul:M=8,N=8,K=24"}),
        ]
        assert [answer.status_code for answer in asked] == [507] * 4
        for answer in asked[:3]:
            assert answer.json()["code"] == "database_limit"
            assert "its limit is 1, and" in answer.json()["detail"]
            assert "db stats" in answer.json()["advice"]
        assert look_up(api, {}, 8) == [None]
        assert store.list_jobs().items == ()
        tuning.register(store, workloads.workload_of("matmul:M=8,N=8,K=40"), HOST)
        other = workloads.workload_of("matmul:M=8,N=8,K=40").key
        missing = api.get(f"/v1/best/{other}/{HOST.key}?min_grade=default")
        assert (missing.status_code, missing.json()["code"]) == (507, "database_limit")


def test_room_is_made_before_anything_is_refused(store: Store) -> None:
    def prepared(number: int) -> None:
        [ticket] = look_up(api, {}, number)
        assert ticket is not None
        store.request_cancel(ticket)
        toolchain = toolchain_name(toolchains.toolchain())
        found = store.claim_preparation(toolchain, "process")
        assert found is not None
        file = ArtefactFile("object", "k.o", "x/o", os.urandom(200_000))
        state = PreparationState.READY
        store.settle_preparation(found.key, "process", state, {"trace": []}, [file])

    settings = Settings(
        limits=replace(RequestLimits(), **LOOKUP_LIMITS), preparers=0, database_bytes=1_500_000
    )
    with TestClient(create_app(settings, store)) as api:
        app: Any = api.app
        for number in range(8, 24):
            app.state.service.room._looked = float("-inf")  # as if some seconds had passed
            prepared(number)
            assert store.used_bytes() < 2_000_000
        assert 0 < store.counts().blobs < 10, "the oldest are gone"


def test_items_with_an_answer_are_told_while_nothing_can_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = keep_best(store, workloads.workload_of(MATMUL))

    def full(*_args: object, **_more: object) -> None:
        raise StoreFull("no room left")

    monkeypatch.setattr(store, "demand", full)
    settings = Settings(limits=replace(RequestLimits(), **LOOKUP_LIMITS), preparers=0)
    with TestClient(create_app(settings, store)) as api:
        body = {
            "workloads": [MATMUL, "matmul:M=8,N=8,K=24"],
            "target": HOST.to_json(),
            "min_grade": "default",
        }
        answer = api.post("/v1/best:lookup", json=body)
        assert answer.status_code == 200
        there, missing = answer.json()["items"]
        assert there["answer"]["record_key"] == record.key
        assert missing["problem"]["code"] == "answer_pending"
        assert "tilewright_store_errors_total 1.0" in api.get("/metrics").text
