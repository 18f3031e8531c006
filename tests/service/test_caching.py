"""What is not sent twice, and what is sent packed."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from tests.support.service.access import a_job, bearer, make_key
from tests.support.service.records import HOST, keep_best
from tilewright.db import Store
from tilewright.db.values.records import ArtefactFile
from tilewright.schedules.workload.workload import Workload
from tilewright.service.http.app import create_app
from tilewright.service.http.caching import etag_matches
from tilewright.service.http.pages.session import COOKIE
from tilewright.service.settings import Settings

PACKED = {"Accept-Encoding": "gzip"}


@pytest.fixture
def paths(store: Store, workload: Workload) -> list[str]:
    """A record, a blob and a best answer, each with an ETag."""
    record = keep_best(store, workload)
    [file] = store.add_artefacts(
        record.key, [ArtefactFile("object", "m.o", "application/x-object", b"x" * 10_000)]
    )
    return [
        f"/v1/records/{record.key}",
        f"/v1/blobs/{file.sha256}",
        f"/v1/best/{workload.key}/{HOST.key}",
    ]


def test_what_the_client_has_is_not_sent_again(api: TestClient, paths: list[str]) -> None:
    for path in paths:
        first = api.get(path)
        assert first.status_code == 200
        etag = first.headers["etag"]
        for asked in (etag, f'"x", {etag}', "*", f"W/{etag}"):
            for method in ("GET", "HEAD"):
                again = api.request(method, path, headers={"If-None-Match": asked})
                assert (again.status_code, again.content) == (304, b"")
                assert again.headers["etag"] == etag
                assert again.headers["cache-control"] == first.headers["cache-control"]
                assert "content-length" not in again.headers
        other = api.get(path, headers={"If-None-Match": '"x"'})
        assert (other.status_code, other.content) == (200, first.content)


def test_what_never_changes_is_kept_by_anybody_only_where_no_key_is_asked_for(
    api: TestClient, store: Store, paths: list[str]
) -> None:
    record, blob, best = paths
    assert api.get(blob).headers["cache-control"].startswith("public, max-age=")
    key = make_key(store)
    with TestClient(create_app(Settings(require_keys=True), store)) as asking:
        for path, kept in ((record, "max-age="), (blob, "max-age="), (best, "no-cache")):
            for sent in (bearer(key), {"Cookie": f"{COOKIE}={key}"}):
                first = asking.get(path, headers=sent)
                again = asking.get(path, headers={**sent, "If-None-Match": first.headers["etag"]})
                assert (first.status_code, again.status_code) == (200, 304)
                for answer in (first, again):
                    assert answer.headers["cache-control"].startswith(f"private, {kept}")


def test_an_error_is_told_whatever_the_client_has(api: TestClient) -> None:
    assert api.get("/v1/jobs/none", headers={"If-None-Match": "*"}).status_code == 404


def test_long_answers_are_packed_and_what_has_an_etag_is_not(
    api: TestClient, paths: list[str]
) -> None:
    plain = api.get("/openapi.json", headers={"Accept-Encoding": "identity"})
    packed = api.get("/openapi.json", headers=PACKED)
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert int(packed.headers["content-length"]) < len(plain.content) / 4
    assert packed.json() == plain.json()
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in api.get("/healthz", headers=PACKED).headers, "short"
    for path in paths:
        answer = api.get(path, headers=PACKED)
        assert "content-encoding" not in answer.headers
        assert int(answer.headers["content-length"]) == len(answer.content)


def test_event_streams_are_never_packed(api: TestClient, store: Store) -> None:
    job = a_job(store)
    store.request_cancel(job.id)  # finished, so that its events end
    with api.stream("GET", f"/v1/jobs/{job.id}/events", headers=PACKED) as answer:
        assert answer.status_code == 200
        assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("asked", "known"),
    [('"a"', True), ('"b", "a"', True), ('W/"a"', True), ("*", True), ('"b"', False), ("a", False),
     ("", False)],
)  # fmt: skip
def test_if_none_match(asked: str, known: bool) -> None:
    assert etag_matches(asked, '"a"') is known
