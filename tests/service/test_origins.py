"""Names a service answers to, pages that may ask it, HEAD and OPTIONS."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service.access import a_job, bearer, make_key
from tests.support.service.records import HOST, MATMUL
from tilewright.db import Store
from tilewright.service.http.app import create_app
from tilewright.service.settings import Settings

JOB = {"workload": MATMUL, "target": HOST.to_json()}


def client(store: Store, *, peer: str = "127.0.0.1", **settings: Any) -> TestClient:
    app = create_app(Settings(**{"allow_host": (), **settings}), store)
    return TestClient(app, base_url="http://127.0.0.1:8470", client=(peer, 1))


def code(answer: Any) -> Any:
    return 200 if answer.status_code == 200 else answer.json()["code"]


@pytest.mark.parametrize(
    ("host", "says"),
    [
        ("localhost:8470", 200), ("LOCALHOST", 200), ("localhost.", 200),
        ("127.0.0.1", 200), ("127.0.0.2:8470", 200), ("[::1]:80", 200), ("[::1]", 200),
        ("tiles.example:443", "bad_host"), ("testserver", "bad_host"), ("", "bad_host"),
        ("127.0.0.1.evil.example", "bad_host"), ("[::2]", "bad_host"), ("192.0.2.1", "bad_host"),
        ("localhost:80:80", "bad_host"), ("user@localhost", "bad_host"),
        ("localhost/x", "bad_host"),
        ("127.0.0.1, evil.example", "bad_host"), ("0x7f000001", "bad_host"),
        ("a" * 999, "bad_host"),
    ],
)  # fmt: skip
def test_a_local_service_answers_to_this_machine(store: Store, host: str, says: object) -> None:
    assert code(client(store).get("/healthz", headers={"Host": host})) == says


def test_it_answers_to_the_names_it_is_given(store: Store) -> None:
    named = client(store, allow_host=("tiles.example", "2001:db8::1"))
    for host in ("tiles.example", "TILES.example:443", "[2001:db8::1]:80", "localhost"):
        assert code(named.get("/healthz", headers={"Host": host})) == 200
    assert code(named.get("/healthz", headers={"Host": "evil.example"})) == "bad_host"


def test_an_open_service_elsewhere_answers_to_addresses_but_not_to_any_name(store: Store) -> None:
    anywhere = client(store, host="0.0.0.0", allow_unauthenticated=True)
    assert code(anywhere.get("/healthz", headers={"Host": "192.0.2.1:8470"})) == 200
    assert code(anywhere.get("/healthz", headers={"Host": "evil.example"})) == "bad_host"
    make_key(store)
    with_keys = client(store, host="0.0.0.0")
    assert code(with_keys.get("/healthz", headers={"Host": "tiles.internal"})) == 200


def test_only_a_trusted_proxy_says_what_was_asked_for(store: Store) -> None:
    headers = {"X-Forwarded-Host": "tiles.example", "Origin": "https://tiles.example"}
    settings = {"allow_host": ("tiles.example",), "trusted_proxy": ("10.0.0.0/8",)}
    behind = client(store, peer="10.1.2.3", **settings)
    assert code(behind.get("/healthz", headers=headers)) == 200
    evil = {**headers, "X-Forwarded-Host": "evil.example"}
    assert code(behind.get("/healthz", headers=evil)) == "bad_host"
    direct = client(store, peer="127.0.0.1", **settings)
    assert code(direct.get("/healthz", headers=headers)) == "foreign_origin"


FOREIGN = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:3000"},
    {"Origin": "http://127.0.0.1"},
    {"Origin": "http://127.0.0.1:8470.evil.example"},
    {"Origin": "file://127.0.0.1:8470"},
    {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:3000"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
    {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_page_of_another_origin_is_refused(store: Store, headers: dict[str, str]) -> None:
    job = a_job(store)
    api = client(store)
    assert code(api.post(f"/v1/jobs/{job.id}:cancel", headers=headers)) == "foreign_origin"
    assert code(api.post("/v1/jobs", json=JOB, headers=headers)) == "foreign_origin"
    assert code(api.get("/v1/jobs", headers=headers)) == "foreign_origin"
    key = bearer(make_key(store))
    assert code(client(store).get("/v1/jobs", headers={**headers, **key})) == "foreign_origin"
    stored = store.get_job(job.id)
    assert stored is not None
    assert stored.state == "QUEUED"
    assert [j.id for j in store.list_jobs().items] == [job.id]


LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
OURS: list[dict[str, str]] = [
    {},
    {"Origin": "http://127.0.0.1:8470"},
    {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8470"},
    {**LINK, "Sec-Fetch-Site": "none"},
    LINK,
]


@pytest.mark.parametrize("headers", OURS, ids=str)
def test_our_own_pages_and_links_to_them_work(store: Store, headers: dict[str, str]) -> None:
    answer = client(store).get("/healthz", headers=headers)
    assert code(answer) == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_following_a_link_changes_nothing(store: Store) -> None:
    assert code(client(store).post("/v1/jobs", json=JOB, headers=LINK)) == "foreign_origin"


def test_a_listed_origin_may_ask_and_read(store: Store) -> None:
    api = client(store, allow_origin=("https://ci.example",))
    preflight = {"Origin": "https://ci.example", "Access-Control-Request-Method": "POST",
                 "Access-Control-Request-Headers": "authorization, content-type"}  # fmt: skip
    answer = api.options("/v1/jobs", headers=preflight)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://ci.example"
    headers = {"Origin": "https://ci.example", "Sec-Fetch-Site": "cross-site"}
    answer = api.get("/v1/jobs", headers=headers)
    assert code(answer) == 200
    assert answer.headers["access-control-allow-origin"] == "https://ci.example"
    assert "ETag" in answer.headers["access-control-expose-headers"]
    refused = api.get("/v1/jobs", headers={"Origin": "https://evil.example"})
    assert code(refused) == "foreign_origin"
    assert "access-control-allow-origin" not in refused.headers
    assert api.options("/v1/jobs", headers={**preflight, "Origin": "null"}).status_code == 400


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/v1/jobs", "GET, HEAD, OPTIONS, POST"), ("/healthz", "GET, HEAD, OPTIONS"),
     ("/v1/best:lookup", "OPTIONS, POST"), ("/v1/jobs/x:cancel", "GET, HEAD, OPTIONS, POST")],
)  # fmt: skip
def test_options_tells_the_methods(store: Store, path: str, methods: str) -> None:
    answer = client(store).options(path)
    assert (answer.status_code, answer.headers["allow"], answer.content) == (204, methods, b"")


def test_options_of_nothing_is_nothing(store: Store) -> None:
    assert client(store).options("/nowhere").status_code == 404


def test_head_is_get_without_its_body(store: Store) -> None:
    job = a_job(store)
    with client(store) as api:
        for path in ("/healthz", "/docs", "/openapi.json", "/limits", "/metrics", "/v1/jobs/none"):
            get, head = api.get(path), api.head(path)
            assert (head.status_code, head.content) == (get.status_code, b"")
            for name in ("content-type", "etag", "cache-control"):
                assert head.headers.get(name) == get.headers.get(name)
        assert api.head("/v1/best:lookup").status_code == 405
        for _ in range(70):  # a stream is never begun, so none is left open
            answer = api.head(f"/v1/jobs/{job.id}/events")
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
        metrics = api.get("/metrics").text
    assert 'method="HEAD",route="/healthz",status="200"' in metrics
