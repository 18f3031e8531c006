"""`POST /v1/builds`: the service makes the object that a lock file pins, as a laptop would."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.testclient import TestClient

from tests.support.paths import ROOT, example_target
from tests.support.service.records import keep_best
from tilewright.db import Store
from tilewright.schedules.target import Target
from tilewright.service.cli import locking, run, service_source
from tilewright.service.cli.service_source import ServiceSource
from tilewright.service.client import Client
from tilewright.service.resolve import workloads
from tilewright.tuner.machine.native_target import native_target

MATMUL = "matmul:M=8,N=8,K=8"


@pytest.fixture
def native() -> Target:
    return native_target(probe=False)


@pytest.fixture
def record(store: Store, native: Target) -> str:
    return keep_best(store, workloads.workload_of(MATMUL), native).key


class Bridge(httpx2.BaseTransport):
    """Requests of our client, answered by the application in this process."""

    def __init__(self, api: TestClient) -> None:
        self.api = api
        self.asked: list[str] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(f"{request.method} {request.url.path}")
        answer = self.api.request(
            request.method, str(request.url.path), content=request.read(),
            headers={"content-type": request.headers.get("content-type", "")},
        )  # fmt: skip
        # What the test's client unpacked is no longer packed.
        headers = {n: v for n, v in answer.headers.items() if n != "content-encoding"}
        return httpx2.Response(answer.status_code, headers=headers, content=answer.content)


@pytest.fixture
def bridge(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> Bridge:
    """What commands do with a URL goes to the application."""
    bridge = Bridge(api)
    made = service_source.ServiceSource

    def connected(client: Client) -> ServiceSource:
        return made(Client("http://service", transport=bridge, sleep=lambda secs: None))

    monkeypatch.setattr(service_source, "ServiceSource", connected)
    return bridge


def build(api: TestClient, code: int = 200, **asked: Any) -> dict[str, Any]:
    answer = api.post("/v1/builds", json={"name": "gemm", "workload": MATMUL, **asked})
    assert answer.status_code == code, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_a_build_is_an_entry_of_a_lock_file_with_its_blobs(
    api: TestClient, record: str, native: Target
) -> None:
    kernel = build(api)["kernel"]
    assert (kernel["record_key"], kernel["grade"]) == (record, "exact")
    for kind in ("object", "header"):
        blob = api.get(f"/v1/blobs/sha256:{kernel[kind]['sha256']}")
        assert len(blob.content) == kernel[kind]["bytes"]
    assert build(api)["kernel"] == kernel
    assert build(api, targets=[native.to_json()], records=[record])["kernel"] == kernel


def test_every_cpu_gets_a_variant(api: TestClient, record: str, native: Target) -> None:
    kernel = build(api, targets=["x86-64-v3", "native"], every_cpu=True)["kernel"]
    assert [v["cpu"] for v in kernel["variants"]] == [native.cpu, "x86-64-v3", "x86-64"]
    assert [v["grade"] for v in kernel["variants"]] == ["exact", "default", "default"]


@pytest.mark.parametrize(
    ("asked", "code", "pointer"),
    [
        ({"name": "printf"}, 400, None),
        ({"name": "a b"}, 400, None),
        ({"targets": []}, 422, "/targets"),
        ({"targets": ["pentium"]}, 422, "/targets/0"),
        ({"targets": ["native"] * 9}, 422, "/targets"),
        ({"min_grade": "best"}, 422, "/min_grade"),
        ({"records": [None, None]}, 422, "/records"),
        ({"records": ["sha256:" + "0" * 64]}, 404, None),
        ({"workload": "nonsense:M=1"}, 422, None),
        ({"every_cpu": "yes"}, 422, "/every_cpu"),
        ({"extra": 1}, 422, "/extra"),
        ({}, 404, None),
    ],
)
def test_a_bad_request_says_what_is_wrong(
    api: TestClient, asked: dict[str, Any], code: int, pointer: str | None
) -> None:
    problem = build(api, code, **asked)
    assert problem["code"]
    if pointer is not None:
        assert [error["pointer"] for error in problem["errors"]] == [pointer]


def test_two_architectures_in_one_object_are_refused(api: TestClient) -> None:
    neoverse = json.loads((ROOT / "examples/targets/neoverse-n1.json").read_text())
    problem = build(api, 422, targets=["x86-64-v3", neoverse], every_cpu=True)
    assert "one architecture" in problem["detail"]
    alone = build(api, targets=[neoverse], every_cpu=True)["kernel"]
    assert (alone["cpu"], alone["grade"]) == ("neoverse-n1", "default")


def test_a_lock_made_with_a_service_is_the_one_made_beside_it(
    bridge: Bridge, record: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    words = ["--cpu", "native,x86-64-v3"]
    url = ["--url", "http://service"]
    assert run(["lock", f"gemm={MATMUL}", *words, *url, "--file", "far.json"]) == 0
    assert (
        run(["lock", f"gemm={MATMUL}", *words, "--file", "near.json", "--db", str(store.path)]) == 0
    )
    assert Path("far.json").read_bytes() == Path("near.json").read_bytes()
    assert run(["lock", "--check", *url, "--file", "far.json"]) == 0

    assert run(["fetch", "far.json", "-o", "far", *url]) == 0
    assert run(["export", "far.zip", "--bundle", "far.json", *url]) == 0
    assert run(["export", "near.zip", "--bundle", "near.json", "--db", str(store.path)]) == 0
    assert run(["fetch", "near.json", "-o", "near", "--db", str(store.path)]) == 0
    for name in ("gemm.o", "gemm.h"):
        assert Path("far", name).read_bytes() == Path("near", name).read_bytes()
    assert Path("far.zip").read_bytes() == Path("near.zip").read_bytes()
    assert f"GET /v1/records/{record}" in bridge.asked
    capsys.readouterr()


def test_a_service_that_lost_a_blob_makes_it_again(
    bridge: Bridge, record: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    url = ["--url", "http://service"]
    assert run(["lock", f"gemm={MATMUL}", *url]) == 0
    lost = {json.loads(Path(locking.LOCK_NAME).read_text())["kernels"][0]["object"]["sha256"]}
    found, put = type(store).blob, type(store).put_blob
    monkeypatch.setattr(
        type(store), "blob", lambda self, sha256: None if sha256 in lost else found(self, sha256)
    )

    def kept(self: Store, data: bytes, media_type: str) -> str:
        lost.clear()
        return put(self, data, media_type)

    monkeypatch.setattr(type(store), "put_blob", kept)
    assert run(["fetch", "-o", "out", *url]) == 0
    assert Path("out/gemm.o").exists()
    capsys.readouterr()


def test_bytes_that_a_service_changed_are_refused(
    bridge: Bridge, record: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    url = ["--url", "http://service"]
    assert run(["lock", f"gemm={MATMUL}", *url]) == 0
    monkeypatch.setattr(Client, "blob", lambda self, key: b"evil")
    assert run(["fetch", "-o", "out", *url]) == 6
    assert not Path("out").exists()
    capsys.readouterr()


X86 = example_target("znver3")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cpu": "zzz9"}, "LLVM has no CPU 'zzz9' for x86_64"),
        ({"features": ("help",)}, "LLVM has no feature 'help' for x86_64"),
        ({"cpu": "pentium4", "features": ()}, "LLVM cannot compile for CPU 'pentium4'"),
    ],
)
def test_a_description_that_llvm_ends_by_is_refused_by_every_route_and_the_command(
    api: TestClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    words: str,
) -> None:
    target = replace(X86, **change).to_json()
    file = tmp_path / "t.json"
    file.write_text(json.dumps(target))
    least = {"min_grade": "default"}
    emit = ["emit", MATMUL, "--target", str(file), "--min-grade", "default", "--json"]
    assert run([*emit, "-o", str(tmp_path / "k"), "--db", str(tmp_path / "no.sqlite")]) == 2
    said = json.loads(capsys.readouterr().out)["error"]["message"]
    assert words in said
    for pointer, route, asked in (
        ("/target", "best:lookup", {"workloads": [MATMUL], "target": target, **least}),
        ("/target", "jobs", {"workload": MATMUL, "target": target}),
        ("/targets/0", "builds", {"name": "k", "workload": MATMUL, "targets": [target], **least}),
    ):
        answer = api.post(f"/v1/{route}", json=asked)
        assert answer.status_code == 422, answer.text
        problem = answer.json()
        assert (problem["code"], problem["errors"][0]["pointer"]) == ("bad_target", pointer)
        assert said in problem["detail"]
