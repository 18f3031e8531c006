"""The dashboard of a service that asks for keys: a browser keeps one, and sees what it opens."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

import pytest
from fastapi.testclient import TestClient

from tests.support.service.access import a_job, make_key
from tilewright.db import Store
from tilewright.service.http.app import create_app
from tilewright.service.settings import Settings


@pytest.fixture
def keys(store: Store) -> dict[str, str]:
    """A key of each owner. Those of a running service are read again after a while only."""
    return {owner: make_key(store, owner=owner) for owner in ("ann", "bob")}


@pytest.fixture
def asked(store: Store, settings: Settings, keys: dict[str, str]) -> Iterator[TestClient]:
    """A browser at a service that has keys, and so asks for one; it keeps none yet."""
    with TestClient(create_app(settings, store), follow_redirects=False) as client:
        client.headers["accept"] = "text/html,*/*;q=0.8"
        yield client


def sign_in(client: TestClient, key: str) -> None:
    answer = client.post("/login", data={"key": key})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_page_asks_for_a_key_and_then_opens(asked: TestClient, keys: dict[str, str]) -> None:
    refused = asked.get("/")
    assert refused.status_code == 401
    assert 'action="/login"' in refused.text
    assert asked.get("/static/tilewright.css").status_code == 200
    sign_in(asked, keys["ann"])
    assert asked.get("/").status_code == 200
    asked.post("/logout")
    assert asked.get("/").status_code == 401


def test_signing_in_goes_on_to_the_page_that_was_asked_for(
    asked: TestClient, store: Store, keys: dict[str, str]
) -> None:
    wanted = f"/jobs/{a_job(store, owner='ann').id}?a=1&b=%22%3E"
    refused = asked.get(wanted)
    assert refused.status_code == 401
    [shown] = re.findall('name="next" value="([^"]*)"', refused.text)
    assert unescape(shown) == wanted
    answer = asked.post("/login", data={"key": keys["ann"], "next": unescape(shown)})
    assert (answer.status_code, answer.headers["location"]) == (303, wanted)
    assert asked.get(wanted).status_code == 200
    assert 'name="next" value="/workloads"' in asked.get("/login?next=/workloads").text


@pytest.mark.parametrize(
    "next_path",
    ["https://evil.example/", "//evil.example/", "/\\evil.example", "\\\\evil.example",
     "/\t/evil.example", "javascript:alert(1)", "jobs/new", "", "/nothing", "/login", "/static/x",
     "/jobs/x\r\nSet-Cookie: a=b", "/workloads?" + "x" * 4000, "/\u2044evil.example",
     "///evil.example", "/.//evil.example"],
)  # fmt: skip
def test_signing_in_leads_nowhere_else(
    asked: TestClient, keys: dict[str, str], next_path: str
) -> None:
    answer = asked.post("/login", data={"key": keys["ann"], "next": next_path})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    shown = asked.get("/login", params={"next": next_path}).text
    assert 'name="next" value="/"' in shown


def test_a_key_that_is_none_is_said_on_the_next_page(asked: TestClient) -> None:
    sign_in(asked, "tw_nothing")
    answer = asked.get("/")
    assert answer.status_code == 401
    assert "not a key of this service" in answer.text


def test_an_owner_sees_its_own_jobs_and_their_count(
    asked: TestClient, store: Store, keys: dict[str, str]
) -> None:
    job = a_job(store, owner="ann")
    for owner, seen in (("ann", 1), ("bob", 0)):
        sign_in(asked, keys[owner])
        for path in ("/", "/jobs/list", "/fleet"):
            text = asked.get(path).text
            assert (job.id in text) == bool(seen), (owner, path)
            assert ("tab-QUEUED" in text) == (bool(seen) and path != "/fleet"), (owner, path)
        assert asked.get(f"/jobs/{job.id}").status_code == (200 if seen else 404)
        cancelled = asked.post(f"/jobs/{job.id}/cancel").status_code
        assert cancelled == (303 if seen else 404)
        store.request_cancel(job.id)
        job = a_job(store, owner="ann")


def test_a_job_of_a_form_has_its_owner(
    asked: TestClient, store: Store, keys: dict[str, str]
) -> None:
    sign_in(asked, keys["ann"])
    answer = asked.post("/jobs", data={"workload": "matmul:M=8,N=8,K=12"})
    assert store.job_is_seen_by(answer.headers["location"].removeprefix("/jobs/"), "ann")
