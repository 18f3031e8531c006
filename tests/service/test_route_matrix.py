"""Every route with every kind of key: the code it is meant to answer, and no route left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient

from tests.support.service.access import make_key
from tests.support.service.records import HOST, MATMUL, keep_best
from tests.support.service.route_matrix import MATRIX, Case
from tilewright.db import Store, open_store
from tilewright.db.values.records import ArtefactFile
from tilewright.service.access.keys import KeyScope
from tilewright.service.http.app import create_app
from tilewright.service.http.route_rules import RULES
from tilewright.service.jobs.request import read_job
from tilewright.service.resolve import workloads
from tilewright.service.settings import Settings

EVERY_SCOPE = tuple(KeyScope)


@dataclass(frozen=True, slots=True)
class Served:
    """A service that asks for keys: its client, what is stored, and a key of each kind."""

    api: TestClient
    stored: dict[str, str]
    keys: dict[str, str]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("matrix")
    with open_store(str(folder / "store.sqlite")) as store:
        yield from serve(store)


def serve(store: Store) -> Iterator[Served]:
    record = keep_best(store, workloads.workload_of(MATMUL))
    [file] = store.add_artefacts(
        record.key, [ArtefactFile("object", "m.o", "application/x-object", b"x")]
    )
    request = read_job({"workload": MATMUL, "target": HOST.to_json()}, Settings()).to_json()
    job, _ = store.create_job(request, body_hash="x", flight_key="x", owner="mine")
    store.request_cancel(job.id)  # finished, so that its events end
    past = datetime.now(UTC) - timedelta(seconds=1)
    keys = {str(scope): make_key(store, owner="mine", scopes=(scope,)) for scope in EVERY_SCOPE}
    keys["expired"] = make_key(store, owner="mine", scopes=EVERY_SCOPE, expires_at=past)
    keys["revoked"] = make_key(store, owner="mine", scopes=EVERY_SCOPE)
    store.revoke_key(keys["revoked"].split("_")[1])
    keys["other owner"] = make_key(store, owner="other", scopes=EVERY_SCOPE[:-1])
    keys["invented"] = keys["read"][:-4] + "aaaa"
    keys["no scope"] = make_key(store, owner="mine", scopes=())
    stored = {
        "JOB": job.id,
        "RECORD": record.key,
        "BLOB": file.sha256,
        "WORKLOAD": record.workload_key,
        "TARGET": record.target_key,
    }
    with TestClient(create_app(Settings(poll_secs=0.01), store)) as api:
        yield Served(api, stored, keys)


def routes(found: Any) -> Iterator[tuple[str, str]]:
    """Every (method, path) of an application, those of its routers included."""
    for route in found:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from routes(inner.routes)
            continue
        for method in getattr(route, "methods", None) or {"GET"}:
            if method != "HEAD":  # goes wherever GET goes
                yield method, route.path


def test_every_route_is_listed_and_every_listed_route_is_there(served: Served) -> None:
    app: Any = served.api.app
    there = set(routes(app.routes))
    listed = {(case.method, case.route) for case in MATRIX}
    assert there == listed, "add new routes to tests/support/service/route_matrix.py"
    assert there == set(RULES), "say in service/http/route_rules.py what new routes ask for"


def test_the_table_says_what_the_matrix_says() -> None:
    for case in MATRIX:
        assert (RULES[case.method, case.route].scope or "") == case.scope, case


def expected(case: Case, principal: str) -> int:
    if not case.scope or principal == "admin":
        return case.ok
    if principal in ("nobody", "expired", "revoked", "invented"):
        return 401
    if principal == "other owner":
        return 404 if case.job else case.ok
    return case.ok if principal == case.scope else 403


PRINCIPALS = (*EVERY_SCOPE, "nobody", "expired", "revoked", "invented", "no scope", "other owner")


@pytest.mark.parametrize("principal", PRINCIPALS)
@pytest.mark.parametrize("case", MATRIX, ids=lambda case: f"{case.method} {case.route}")
def test_a_route_answers_a_key(served: Served, case: Case, principal: str) -> None:
    path = case.path
    for name, value in served.stored.items():
        path = path.replace(name, value)
    key = served.keys.get(principal)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    wanted = expected(case, principal)
    methods = [case.method, "HEAD"] if case.method == "GET" else [case.method]
    sent: dict[str, Any] = {"json": case.body} if case.body else {}
    if case.form is not None:
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        sent = {"content": urlencode(case.form)}
    if case.lines:
        headers["Content-Type"] = "application/x-ndjson"
        sent = {"content": case.lines}
    served.api.cookies.clear()  # of the case that signed in
    for method in methods:
        answer = served.api.request(method, path, headers=headers, follow_redirects=False, **sent)
        assert answer.status_code == wanted, answer.text
        if case.scope:
            assert kept_by_nobody_else(answer.headers["cache-control"]), path
        if wanted == 401:
            assert answer.headers["www-authenticate"].startswith("Bearer")
        if wanted >= 400 and method != "HEAD":
            assert answer.headers["content-type"] == "application/problem+json"
            assert answer.json()["code"] == CODES.get(principal, answer.json()["code"])


def kept_by_nobody_else(cache_control: str) -> bool:
    """Whether a cache that several people use keeps nothing of an answer."""
    told = {part.strip() for part in cache_control.split(",")}
    return bool(told & {"private", "no-store"}) and "public" not in told


CODES = {
    "nobody": "no_key",
    "expired": "expired_key",
    "revoked": "revoked_key",
    "invented": "bad_key",
}


def test_another_owners_jobs_are_not_in_the_list(served: Served) -> None:
    def ids(principal: str) -> list[str]:
        headers = {"Authorization": f"Bearer {served.keys[principal]}"}
        return [job["id"] for job in served.api.get("/v1/jobs", headers=headers).json()["jobs"]]

    assert served.stored["JOB"] in ids("read")
    assert set(ids("read")) <= set(ids("admin"))
    assert served.stored["JOB"] not in ids("other owner")


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/nothing"), ("GET", "/v1/jobs/"), ("DELETE", "/v1/jobs"), ("TRACE", "/v1/jobs"),
     ("GET", "/v1/jobs/x/y/z"), ("PUT", "/v1/jobs/x:cancel")],
)  # fmt: skip
def test_what_is_not_listed_is_for_nobody(served: Served, method: str, path: str) -> None:
    def status(principal: str) -> int:
        key = served.keys.get(principal, "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return served.api.request(method, path, headers=headers, follow_redirects=False).status_code

    assert status("nobody") == 401
    assert status("read") in (404, 405)
