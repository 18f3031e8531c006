"""Bad input over HTTP: always a problem document with a code, never a 5xx."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.service.records import HOST, MATMUL
from tests.support.times import TIMES
from tilewright.db import Store
from tilewright.db.errors import StoreHeld
from tilewright.service.http.app import create_app
from tilewright.service.limits import RequestLimits
from tilewright.service.problems import documented_classes
from tilewright.service.settings import Settings

JSON = {"Content-Type": "application/json"}
PROBLEM = "application/problem+json"
GOOD: dict[str, Any] = {"workload": MATMUL, "target": HOST.to_json()}


def problem_of(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == PROBLEM
    document: dict[str, Any] = answer.json()
    assert document["status"] == status
    assert document["code"]
    assert document["title"]
    assert document["detail"]
    assert document["advice"]
    assert document["request_id"] == answer.headers["x-request-id"]
    return document


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing/here", 404, "not_found"),
        ("GET", "/v1/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV", 404, "not_found"),
        ("GET", "/v1/jobs/../../etc/passwd", 404, "not_found"),
        ("GET", "/v1/jobs/%00", 404, "not_found"),
        ("GET", "/v1/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV/trials", 404, "not_found"),
        ("GET", "/v1/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV/events", 404, "not_found"),
        ("POST", "/v1/jobs/01ARZ3NDEKTSV4RRFFQ69G5FAV:cancel", 404, "not_found"),
        ("PUT", "/v1/jobs", 405, "method_not_allowed"),
        ("POST", "/v1/jobs", 415, "unsupported_media_type"),
        ("GET", "/v1/jobs?page_token=zzz", 400, "bad_page_token"),
        ("GET", "/v1/jobs?page_size=many", 422, "bad_parameter"),
        ("GET", "/v1/jobs?state=DREAMING", 422, "bad_parameter"),
        ("GET", "/v1/best/x/y", 404, "not_found"),
        ("GET", f"/v1/best/{'a' * 64}/{'b' * 64}", 404, "no_answer"),
        ("GET", f"/v1/best/{'a' * 64}/{'b' * 64}?min_grade=perfect", 422, "bad_parameter"),
        ("GET", "/v1/records/sha256:zz", 404, "not_found"),
        ("GET", f"/v1/records/sha256:{'0' * 64}", 404, "not_found"),
        ("GET", f"/v1/blobs/{'0' * 64}", 404, "not_found"),
        ("GET", "/v1/blobs/..%2f..%2fetc%2fpasswd", 404, "not_found"),
    ],
)
def test_paths_and_parameters(
    api: TestClient, method: str, path: str, status: int, code: str
) -> None:
    assert problem_of(api.request(method, path), status)["code"] == code


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "malformed_json"),
        (b"{", 400, "bad_json"),
        (b"\xff\xfe", 400, "bad_json"),
        (b'{"workload": NaN}', 400, "bad_json"),
        (b'{"seed": 1e400}', 400, "bad_json"),
        (b'{"workload": "a", "workload": "b"}', 400, "bad_json"),
        (b'{"workload": "\\ud800"}', 400, "bad_json"),
        (b'{"seed": ' + b"9" * 5000 + b"}", 400, "bad_json"),
        (b"[" * 100_000, 422, "too_large"),
        (b"[]", 422, "invalid_field"),
        (b"{}", 422, "missing"),
    ],
)
def test_hostile_json(api: TestClient, body: bytes, status: int, code: str) -> None:
    answer = api.post("/v1/jobs", content=body, headers=JSON)
    assert problem_of(answer, status)["code"] == code


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"workload": 3}, "/workload"),
        ({"workload": "matmul:M=8"}, "/workload"),
        ({"workload": "no_such_operator:M=8"}, "/workload"),
        ({"workload": "matmul:M=0,N=8,K=8"}, "/workload"),
        ({"workload": "matmul:M=-5,N=8,K=8"}, "/workload"),
        ({"workload": "matmul:M=1000000,N=1000000,K=1000000"}, "/workload"),
        ({"workload": "/etc/passwd.json"}, "/workload"),
        ({"workload": "evil.py:run"}, "/workload"),
        ({"workload": {"stages": []}}, "/workload"),
        ({"workload": {"expr": 3}}, "/workload/expr"),
        ({"workload": {"expr": "C[i] = A[i]", "tensors": 3}}, "/workload/tensors"),
        ({"workload": {"expr": "C[i] = A[i]", "tensors": {"A": 3}}}, "/workload/tensors"),
        ({"workload": {"expr": "C[i] = A[i]", "ranges": {"i": True}}}, "/workload/ranges"),
        ({"workload": {"expr": "C[i] = A[i]", "code": "x"}}, "/workload/code"),
        ({"workload": {"expr": "C[i] = A[i]", "allow_error": "x"}}, "/workload/allow_error"),
        ({"workload": "matmul:M=8,N=8,K=8,allow_error=2"}, "/workload"),
        ({"target": "far away"}, "/target"),
        ({"target": {}}, "/target"),
        ({"target": {**HOST.to_json(), "vector_bits": 7}}, "/target"),
        ({"threads": 3.0}, "/threads"),
        ({"threads": 4096}, "/target"),
        ({"budget": {"trials": 0}}, "/budget/trials"),
        ({"budget": {"seconds": -1}}, "/budget/seconds"),
        ({"budget": {"hours": 1}}, "/budget/hours"),
        ({"strategy": "luck"}, "/strategy"),
        ({"seed": -1}, "/seed"),
        ({"seed": True}, "/seed"),
        ({"colour": "red"}, "/colour"),
    ],
)
def test_a_field_that_will_not_do_is_pointed_at(
    api: TestClient, change: dict[str, Any], pointer: str
) -> None:
    problem = problem_of(api.post("/v1/jobs", json={**GOOD, **change}), 422)
    assert problem["errors"][0]["pointer"] == pointer


def test_a_target_this_machine_cannot_run_is_refused_at_once(api: TestClient) -> None:
    target = {**HOST.to_json(), "triple": "aarch64-unknown-linux-gnu", "cpu": "neoverse-v2",
              "features": ["neon"]}  # fmt: skip
    problem = problem_of(api.post("/v1/jobs", json={**GOOD, "target": target}), 422)
    assert problem["code"] == "bad_target"
    assert "cannot be timed on this machine" in problem["detail"]


def test_a_body_is_cut_off_at_its_limit(store: Store) -> None:
    with TestClient(create_app(Settings(limits=RequestLimits(body_bytes=1000)), store)) as api:

        def endless() -> Iterator[bytes]:
            for _ in range(10_000):
                yield b" " * 500

        problem_of(api.post("/v1/jobs", content=b" " * 1001, headers=JSON), 413)
        problem_of(api.post("/v1/jobs", content=endless(), headers=JSON), 413)


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
def test_compressed_bodies_are_not_unpacked(api: TestClient, encoding: str) -> None:
    answer = api.post("/v1/jobs", content=b"x", headers={**JSON, "Content-Encoding": encoding})
    assert problem_of(answer, 415)["code"] == "unsupported_media_type"


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_an_idempotency_key_that_will_not_do(api: TestClient, key: str) -> None:
    answer = api.post("/v1/jobs", json=GOOD, headers={"Idempotency-Key": key})
    assert problem_of(answer, 422)["code"] == "bad_idempotency_key"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:80", "", "[::2]"])
def test_a_page_elsewhere_cannot_reach_a_local_service_under_its_own_name(
    api: TestClient, host: str
) -> None:
    assert problem_of(api.get("/healthz", headers={"Host": host}), 400)["code"] == "bad_host"


@pytest.mark.parametrize("host", ["localhost:8470", "127.0.0.1", "[::1]:80", "LOCALHOST"])
def test_the_machines_own_names_are_let_in(api: TestClient, host: str) -> None:
    assert api.get("/healthz", headers={"Host": host}).status_code == 200


def test_an_unusable_database_is_503_with_a_time_to_come_back(
    api: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held() -> None:
        raise StoreHeld("database x: another process holds it")

    assert api.get("/readyz").status_code == 200
    monkeypatch.setattr(store, "counts", held)
    answer = api.get("/readyz")
    assert problem_of(answer, 503)["code"] == "database_held"
    assert answer.headers["retry-after"]
    assert api.get("/healthz").status_code == 200


def test_a_bug_is_told_as_one_and_not_hidden(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(store, "counts", broken)
    with TestClient(create_app(Settings(), store), raise_server_exceptions=False) as api:
        answer = api.get("/readyz")
        assert answer.status_code == 500
        assert answer.headers["content-type"] == PROBLEM
        assert answer.json()["code"] == "internal_error"
        assert "secret detail" not in answer.text
    with (
        TestClient(create_app(Settings(), store)) as api,
        pytest.raises(ZeroDivisionError, match="secret detail"),
    ):
        api.get("/readyz")


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from([MATMUL, "native", "local", "exact", "f32[8,8]", "C[i] = A[i]"]),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["workload", "workloads", "target", "expr", "tensors", "ranges", "inputs", "stages",
             "outputs", "name", "shape", "dtype", "version", "axes", "body"]
        )
        | st.text(max_size=5),
        inner,
        max_size=5,
    ),
    max_leaves=12,
)  # fmt: skip
FIELDS = ["workload", "target", "threads", "budget", "strategy", "seed", "measurer", "min_grade"]


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    from tilewright.db import open_store

    folder = tmp_path_factory.mktemp("fuzz")
    with (
        open_store(str(folder / "store.sqlite")) as store,
        TestClient(create_app(Settings(), store), raise_server_exceptions=True) as api,
    ):
        yield api


@settings(max_examples=150 * TIMES, suppress_health_check=list(HealthCheck))
@given(
    path=st.sampled_from(["/v1/jobs?validate_only=true", "/v1/best:lookup"]),
    body=JSON_VALUES
    | st.builds(
        lambda good, field, value: {**good, field: value},
        st.sampled_from([GOOD, {"workloads": [MATMUL], "target": HOST.to_json()}]),
        st.sampled_from(FIELDS),
        JSON_VALUES,
    ),
)
@example(path="/v1/best:lookup", body={"workloads": [{"expr": "C[i,j] += A[i", "tensors": {}}]})
def test_no_json_body_makes_a_5xx(fuzzed: TestClient, path: str, body: Any) -> None:
    answer = fuzzed.post(path, content=json.dumps(body), headers=JSON)
    assert answer.status_code < 500
    if answer.status_code >= 400:
        problem_of(answer, answer.status_code)


@settings(max_examples=150 * TIMES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_damaged_body_makes_a_5xx(fuzzed: TestClient, data: st.DataObject) -> None:
    body = bytearray(json.dumps(GOOD).encode())
    for _ in range(data.draw(st.integers(1, 6))):
        position = data.draw(st.integers(0, len(body) - 1))
        if data.draw(st.booleans()):
            del body[position : position + data.draw(st.integers(1, 30))]
            body = body or bytearray(b" ")
        else:
            body[position] = data.draw(st.integers(0, 255))
    answer = fuzzed.post("/v1/jobs?validate_only=true", content=bytes(body), headers=JSON)
    assert answer.status_code < 500
    if answer.status_code >= 400:
        problem_of(answer, answer.status_code)


@settings(max_examples=100 * TIMES, suppress_health_check=list(HealthCheck))
@given(
    route=st.sampled_from(
        ["/v1/jobs/{}", "/v1/jobs/{}/trials", "/v1/jobs/{}/events", "/v1/records/{}",
         "/v1/blobs/{}", "/v1/best/{0}/{0}", "/v1/jobs?page_token={}", "/v1/jobs?page_size={}",
         "/v1/jobs/" + "0" * 26 + "?wait={}"]
    ),
    text=st.text(max_size=30)
    | st.sampled_from(["' OR 1=1 --", "%2e%2e%2f", "99999999999999999999", "sha256:", "\0"]),
)  # fmt: skip
def test_no_text_in_a_path_or_query_makes_a_5xx(fuzzed: TestClient, route: str, text: str) -> None:
    from urllib.parse import quote

    answer = fuzzed.get(route.format(quote(text.encode(errors="surrogatepass"), safe="")))
    assert answer.status_code < 500


def test_openapi_lists_every_route_with_its_errors_and_a_stable_name(api: TestClient) -> None:
    openapi = api.get("/openapi.json").json()
    assert openapi["openapi"].startswith("3.1")
    operations = {
        (method.upper(), path): operation
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == {
        ("POST", "/v1/jobs"),
        ("GET", "/v1/jobs"),
        ("GET", "/v1/jobs/{job_id}"),
        ("POST", "/v1/jobs/{job_id}:cancel"),
        ("GET", "/v1/jobs/{job_id}/events"),
        ("GET", "/v1/jobs/{job_id}/trials"),
        ("GET", "/v1/best/{workload_key}/{target_key}"),
        ("POST", "/v1/best:lookup"),
        ("POST", "/v1/records"),
        ("GET", "/v1/fleet"),
        ("POST", "/v1/builds"),
        ("POST", "/v1/builds:check"),
        ("GET", "/v1/records/{key}"),
        ("GET", "/v1/blobs/{key}"),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/metrics"),
        ("GET", "/limits"),
    }
    names = [operation["operationId"] for operation in operations.values()]
    assert len(set(names)) == len(names)


def test_every_reference_in_openapi_leads_somewhere(api: TestClient) -> None:
    openapi = api.get("/openapi.json").json()
    references = set(re.findall(r'"\$ref": "([^"]+)"', json.dumps(openapi)))
    assert "#/components/schemas/JobIn" in references
    for reference in references:
        found = openapi
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]


def test_the_docs_page_needs_nothing_from_outside(api: TestClient) -> None:
    answer = api.get("/docs")
    page = answer.text
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "style-src 'self'" in policy
    assert " style=" not in page
    assert "/v1/best:lookup" in page
    assert "http://" not in page
    assert "https://" not in page
    for place in re.findall(r'(?:src|href)="([^"]*)"', page):
        assert place.startswith(("/", "#"))


def test_the_docs_page_has_the_frame_of_the_others_and_every_route_and_problem(
    api: TestClient,
) -> None:
    page = api.get("/docs").text
    nav = page.partition('<nav aria-label="Pages">')[2].partition("</nav>")[0]
    assert re.findall(r'href="([^"]*)"', nav) == ["/", "/workloads", "/fleet", "/docs"]
    assert '<a href="/docs" aria-current="page">' in nav
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', page)) <= set(ids)
    for methods in api.get("/openapi.json").json()["paths"].values():
        assert {operation["operationId"] for operation in methods.values()} <= set(ids)
    assert {cls.code for cls in documented_classes()} <= set(ids), (
        "problems link here by their code"
    )
    assert "Successful Response" not in page
