"""One owner's haste is not another's wait: rates, open jobs, trials, streams, slow bodies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import anyio
import pytest
from fastapi.testclient import TestClient

from tests.support.service.access import bearer, make_key
from tests.support.service.requests import LOOKUP_LIMITS, job, look_up
from tilewright.db import Store
from tilewright.service.access.keys import KeyScope
from tilewright.service.access.rates import OwnerConcurrencyLimits, RateLimiter, retry_after_secs
from tilewright.service.errors import TooLarge, TooSlow
from tilewright.service.http.app import create_app
from tilewright.service.http.guard import _Body
from tilewright.service.limits import RequestLimits
from tilewright.service.settings import Settings


def client(store: Store, **limits: Any) -> TestClient:
    return TestClient(create_app(Settings(limits=replace(RequestLimits(), **limits)), store))


def test_a_bucket_fills_at_its_rate_up_to_its_burst() -> None:
    moment = 0.0
    rates = RateLimiter(per_sec=10.0, burst=3, clock=lambda: moment)
    assert [rates.take("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert rates.take("a") == pytest.approx(0.1)
    assert rates.take("b") == 0.0, "another owner has a bucket of its own"
    moment += 0.05
    assert rates.take("a") == pytest.approx(0.05)
    moment += 0.05
    assert rates.take("a") == 0.0
    moment += 1e6
    assert [rates.take("a") > 0 for _ in range(4)] == [False, False, False, True]
    assert (retry_after_secs(0.01), retry_after_secs(1.2)) == (1, 2)


def test_buckets_of_long_ago_are_forgotten() -> None:
    rates = RateLimiter(per_sec=1.0, burst=1)
    for number in range(20_000):
        rates.take(str(number))
    assert len(rates._buckets) == 10_000


def test_a_gate_counts_what_is_open() -> None:
    gates = OwnerConcurrencyLimits(1)
    with gates.admitted("a") as first, gates.admitted("a") as second, gates.admitted("b") as other:
        assert (first, second, other) == (True, False, True)
    with gates.admitted("a") as again:
        assert again
    assert gates._open == {}


def test_too_many_requests_are_told_when_to_come_back(store: Store) -> None:
    fast, calm = bearer(make_key(store)), bearer(make_key(store))
    with client(store, requests_per_sec=0.01, requests_burst=5) as api:
        told = [api.get("/v1/jobs", headers=fast) for _ in range(8)]
        assert [answer.status_code for answer in told] == [200] * 5 + [429] * 3
        assert told[-1].json()["code"] == "too_many_requests"
        assert int(told[-1].headers["retry-after"]) > 60
        assert api.get("/v1/jobs", headers=calm).status_code == 200
        assert api.get("/healthz", headers=fast).status_code == 200


def test_open_jobs_of_an_owner_are_bounded(store: Store) -> None:
    first, second = make_key(store, owner="ci"), make_key(store, owner="ci")
    other = bearer(make_key(store))
    with client(store, owner_open_jobs=2) as api:
        made = [api.post("/v1/jobs", json=job(n), headers=bearer(first)) for n in (8, 16)]
        assert [answer.status_code for answer in made] == [202, 202]
        full = api.post("/v1/jobs", json=job(24), headers=bearer(second))
        assert (full.status_code, full.json()["code"]) == (429, "quota_reached")
        assert full.headers["retry-after"]
        again = api.post("/v1/jobs", json=job(8), headers=bearer(second))
        assert again.json()["id"] == made[0].json()["id"], "this one is open already"
        assert api.post("/v1/jobs", json=job(24), headers=other).status_code == 202
        api.post(f"/v1/jobs/{made[0].json()['id']}:cancel", headers=bearer(first))
        assert api.post("/v1/jobs", json=job(24), headers=bearer(second)).status_code == 202


def test_trials_that_wait_are_bounded(store: Store) -> None:
    key = bearer(make_key(store))
    with client(store, owner_open_trials=10) as api:
        assert api.post("/v1/jobs", json=job(8, 8), headers=key).status_code == 202
        assert api.post("/v1/jobs", json=job(16, 3), headers=key).status_code == 429
        leased = store.lease_job("worker", 30)
        assert leased is not None
        store.report_job(leased.id, leased.epoch, progress={"trials_done": 5})
        assert api.post("/v1/jobs", json=job(16, 3), headers=key).status_code == 202


def test_tickets_have_an_owner_and_a_quota_of_their_own(store: Store) -> None:
    mine, theirs = bearer(make_key(store)), bearer(make_key(store))
    limits = {**LOOKUP_LIMITS, "owner_ticket_jobs": 2, "owner_open_jobs": 1}
    settings = Settings(limits=replace(RequestLimits(), **limits), preparers=0)
    with TestClient(create_app(settings, store)) as api:
        first, second, third = look_up(api, mine, 8, 16, 24)
        assert first is not None
        assert second is not None
        assert third is None, "it is prepared, and tuned when somebody submits it"
        listed = api.get("/v1/jobs", headers=mine).json()["jobs"]
        assert {job["id"] for job in listed} == {first, second}
        assert api.post("/v1/jobs", json=job(40), headers=mine).status_code == 202, (
            "tickets take no place from what is submitted"
        )
        [of_theirs] = look_up(api, theirs, 32)
        assert of_theirs is not None


def test_a_ticket_is_for_everybody_to_follow_and_its_owner_to_end(store: Store) -> None:
    mine, theirs = bearer(make_key(store)), bearer(make_key(store))
    settings = Settings(limits=replace(RequestLimits(), **LOOKUP_LIMITS), preparers=0)
    with TestClient(create_app(settings, store)) as api:
        [ticket] = look_up(api, mine, 8)
        assert look_up(api, theirs, 8) == [ticket]
        path = f"/v1/jobs/{ticket}"
        assert api.get(path, headers=theirs).status_code == 200
        refused = api.post(f"{path}:cancel", headers=theirs)
        assert (refused.status_code, refused.json()["code"]) == (409, "shared_job")
        assert api.get("/v1/jobs", headers=theirs).json()["jobs"] == []
        assert api.post(f"{path}:cancel", headers=mine).json()["state"] == "CANCELLED"


def test_a_ticket_that_is_submitted_counts_as_what_was_submitted(store: Store) -> None:
    key = bearer(make_key(store))
    limits = {**LOOKUP_LIMITS, "owner_open_jobs": 1}
    settings = Settings(limits=replace(RequestLimits(), **limits), preparers=0)
    with TestClient(create_app(settings, store)) as api:
        tickets = look_up(api, key, 8, 16)

        def submit(number: int) -> Any:
            body = {"workload": f"matmul:M=8,N=8,K={number}", "target": "native"}
            return api.post("/v1/jobs", json=body, headers=key)

        made = submit(8)
        assert (made.status_code, made.json()["id"]) == (202, tickets[0])
        assert submit(8).status_code == 202, "the same again is no other"
        assert submit(16).json()["code"] == "quota_reached"


def test_equal_work_of_two_owners_is_one_job_that_neither_ends_for_both(store: Store) -> None:
    mine, theirs = bearer(make_key(store)), bearer(make_key(store))
    admin = bearer(make_key(store, scopes=(KeyScope.ADMIN,)))
    with client(store) as api:
        made = api.post("/v1/jobs", json=job(8), headers=mine).json()
        path = f"/v1/jobs/{made['id']}"
        assert api.get(path, headers=theirs).status_code == 404
        assert api.post("/v1/jobs", json=job(8), headers=theirs).json()["id"] == made["id"]
        assert api.get(path, headers=theirs).status_code == 200
        assert api.get(path, headers=mine).json()["sharing"] == {
            "owners": 2,
            "withdrawn": False,
            "names": None,
        }
        left = api.post(f"{path}:cancel", headers=theirs)
        assert (left.status_code, left.json()["state"]) == (200, "QUEUED"), "it goes on for another"
        assert left.json()["sharing"] == {"owners": 1, "withdrawn": True, "names": None}
        assert api.get(path, headers=mine).json()["sharing"]["owners"] == 1
        [listed] = api.get("/v1/jobs", headers=theirs).json()["jobs"]
        assert listed["sharing"]["withdrawn"]
        assert api.post("/v1/jobs", json=job(8), headers=theirs).json()["id"] == made["id"]
        shown = api.get(path, headers=admin).json()["sharing"]
        assert (shown["owners"], len(shown["names"])) == (2, 2)
        assert api.post(f"{path}:cancel", headers=admin).json()["state"] == "CANCELLED"
        assert api.post(f"{path}:cancel", headers=theirs).status_code == 200, "it is over anyway"


def test_the_last_owner_who_withdraws_ends_the_job(store: Store) -> None:
    mine, theirs = bearer(make_key(store)), bearer(make_key(store))
    with client(store, owner_open_jobs=1) as api:
        made = api.post("/v1/jobs", json=job(8), headers=mine).json()["id"]
        assert api.post("/v1/jobs", json=job(8), headers=theirs).status_code == 202
        for key, state in ((mine, "QUEUED"), (mine, "QUEUED"), (theirs, "CANCELLED")):
            told = api.post(f"/v1/jobs/{made}:cancel", headers=key).json()
            assert told["state"] == state
        assert api.post("/v1/jobs", json=job(16), headers=mine).status_code == 202


def test_an_idempotency_key_is_its_owners(store: Store) -> None:
    mine, theirs = bearer(make_key(store)), bearer(make_key(store))
    key = {"Idempotency-Key": "build-1"}
    with client(store) as api:
        made = api.post("/v1/jobs", json=job(8), headers={**mine, **key}).json()["id"]
        other = api.post("/v1/jobs", json=job(16), headers={**theirs, **key})
        assert other.status_code == 202
        assert other.json()["id"] != made
        assert api.post("/v1/jobs", json=job(8), headers={**mine, **key}).json()["id"] == made
        assert api.post("/v1/jobs", json=job(24), headers={**mine, **key}).status_code == 422


def test_streams_of_an_owner_are_bounded(store: Store) -> None:
    key, other = bearer(make_key(store)), bearer(make_key(store, scopes=(KeyScope.ADMIN,)))
    with client(store, owner_event_streams=0) as api:
        made = api.post("/v1/jobs", json=job(8), headers=key).json()["id"]
        full = api.get(f"/v1/jobs/{made}/events", headers=key)
        assert (full.status_code, full.json()["code"]) == (429, "too_busy")
        assert api.get(f"/v1/jobs/{made}/trials", headers=key).status_code == 200
        assert api.get(f"/v1/jobs/{made}", headers=other).status_code == 200


def test_a_body_is_cut_off_wherever_it_is_read() -> None:
    def body(*chunks: bytes, secs: float = 1.0) -> _Body:
        left: Iterator[bytes] = iter(chunks)

        async def receive() -> Any:
            chunk = next(left, None)
            if chunk is None:
                await anyio.sleep(60)
            return {"type": "http.request", "body": chunk, "more_body": True}

        limits = replace(RequestLimits(), body_bytes=10, lookup_body_bytes=20, body_secs=secs)
        return _Body(receive, limits)

    async def read(found: _Body) -> None:
        while (await found()).get("more_body"):
            pass

    with pytest.raises(TooLarge, match="20 bytes"):
        anyio.run(read, body(b"x" * 15, b"x" * 15))
    with pytest.raises(TooSlow, match=r"0\.05 s"):
        anyio.run(read, body(b"x", secs=0.05))


def test_the_limits_are_all_told(store: Store) -> None:
    told = client(store).get("/limits").json()
    for name in ("requests_per_sec", "requests_burst", "owner_open_jobs", "owner_open_trials",
                 "owner_event_streams", "connections", "header_secs", "body_secs"):  # fmt: skip
        assert told[name] > 0
