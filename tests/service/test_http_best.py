"""The best answer over HTTP: graded, cacheable, a thousand at once."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service.records import HOST, MATMUL, TOOLCHAIN, keep_best, make_record
from tilewright.db import Store
from tilewright.db.values.records import ArtefactFile
from tilewright.schedules.record import Evidence, Toolchain
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers import lookup
from tilewright.service.resolve import workloads

OBJECT = [ArtefactFile("object", "matmul.o", "application/x-object", b"\x7fELF...")]
OTHER_COMPILER = Toolchain(TOOLCHAIN.codegen_version + 1, "0.1.0", "1.0")


def url(workload: Workload) -> str:
    return f"/v1/best/{workload.key}/{HOST.key}"


def test_the_best_is_told_with_its_grade(api: TestClient, store: Store, workload: Workload) -> None:
    record = keep_best(store, workload, secs=2e-6, evidence=Evidence(3, 1.0))
    answer = api.get(url(workload))
    assert answer.status_code == 200
    document = answer.json()
    assert document["grade"] == "exact"
    assert document["record_key"] == record.key
    assert document["run_secs"] == 2e-6
    assert document["gflops"] == pytest.approx(1024 / 2e-6 / 1e9)
    assert document["verified"]
    assert document["evidence"] == {"cases": 3, "sampled_fraction": 1.0}
    assert document["trace"] == []
    assert answer.headers["content-location"] == f"/v1/records/{record.key}"


def test_an_unchanged_answer_is_304_and_a_better_one_is_not(
    api: TestClient, store: Store, workload: Workload
) -> None:
    keep_best(store, workload, secs=2e-3)
    first = api.get(url(workload))
    etag = first.headers["etag"]
    assert etag.startswith('"')
    for tags in (etag, f'"other", {etag}', "*"):
        again = api.get(url(workload), headers={"If-None-Match": tags})
        assert again.status_code == 304
        assert again.content == b""
        assert again.headers["etag"] == etag
    keep_best(store, workload, secs=1e-3, trial=2)
    better = api.get(url(workload), headers={"If-None-Match": etag})
    assert better.status_code == 200
    assert better.headers["etag"] != etag


def test_another_machines_record_needs_a_lower_grade(
    api: TestClient, store: Store, workload: Workload
) -> None:
    here = keep_best(store, workloads.workload_of("matmul:M=4,N=4,K=4"))
    assert here.target_key == HOST.key
    keep_best(store, workload, replace(HOST, threads=2))
    assert api.get(url(workload)).json()["code"] == "no_answer"
    answer = api.get(url(workload), params={"min_grade": "same-cpu"}).json()
    assert answer["grade"] == "same-cpu"
    assert answer["made_for"]["threads"] == 2


def test_another_compilers_record_is_not_served_as_exact(
    api: TestClient, store: Store, workload: Workload
) -> None:
    keep_best(store, workload, toolchain=OTHER_COMPILER)
    assert api.get(url(workload)).status_code == 202, "it is being checked"
    answer = api.get(url(workload), params={"min_grade": "compatible"}).json()
    assert answer["grade"] == "compatible"
    assert not answer["verified"]


def ask(api: TestClient, workloads: list[Any], **more: Any) -> list[dict[str, Any]]:
    body = {"workloads": workloads, "target": HOST.to_json(), **more}
    answer = api.post("/v1/best:lookup", json=body)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def test_a_lookup_answers_every_item_in_order(
    api: TestClient, store: Store, workload: Workload
) -> None:
    record = keep_best(store, workload)
    document = workload.to_json()
    items = ask(
        api,
        [
            MATMUL,
            document,
            workload.key,
            f"sha256:{workload.key}",
            "matmul:M=9,N=9,K=9",
            "nonsense",
        ],
    )
    assert [item["found"] for item in items] == [True] * 4 + [False] * 2
    assert {item["answer"]["record_key"] for item in items[:4]} == {record.key}
    assert items[4]["problem"]["code"] == "no_answer"
    assert items[5]["problem"]["code"] == "unknown_operator"
    assert items[5]["problem"]["errors"][0]["pointer"] == "/workloads/5"


def test_a_lookup_with_default_takes_the_best_there_is(
    api: TestClient, store: Store, workload: Workload
) -> None:
    keep_best(store, workload)
    items = ask(api, [MATMUL, "matmul:M=9,N=9,K=9", "a" * 64], min_grade="default")
    assert [item["answer"] and item["answer"]["grade"] for item in items] == ["exact", None, None]
    assert [item["pending"] for item in items] == [False, True, False]


def test_a_bug_met_for_one_item_is_logged_and_spoils_no_other(
    api: TestClient,
    store: Store,
    workload: Workload,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    real = workloads.workload_of

    def fails_for_nine(spelled: str | dict[str, Any]) -> Workload:
        if "9" in spelled:
            raise ZeroDivisionError("ours")
        return real(spelled)

    keep_best(store, workload)
    monkeypatch.setattr(workloads, "workload_of", fails_for_nine)
    items = ask(api, [MATMUL, "matmul:M=9,N=9,K=9", MATMUL])
    assert [item["found"] for item in items] == [True, False, True]
    assert items[1]["problem"]["code"] == "internal_error"
    assert items[1]["problem"]["errors"][0]["pointer"] == "/workloads/1"
    assert "ZeroDivisionError" in caplog.text


def test_a_thousand_documents_are_looked_up_at_once(
    api: TestClient, store: Store, workload: Workload
) -> None:
    keep_best(store, workload)
    document = workload.to_json()
    items = ask(api, [document] * 1000)
    assert len(items) == 1000
    assert all(item["found"] for item in items)
    answer = api.post(
        "/v1/best:lookup", json={"workloads": [MATMUL] * 1001, "target": HOST.to_json()}
    )
    assert answer.status_code == 422


def test_a_lookup_takes_a_known_targets_key(
    api: TestClient, store: Store, workload: Workload
) -> None:
    keep_best(store, workload)
    assert ask(api, [MATMUL], target=HOST.key)[0]["found"]
    answer = api.post("/v1/best:lookup", json={"workloads": [MATMUL], "target": "f" * 64})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/target"


def test_records_are_immutable_and_named_by_their_content(
    api: TestClient, store: Store, workload: Workload
) -> None:
    record = keep_best(store, workload)
    for name in (record.key, record.key.removeprefix("sha256:")):
        answer = api.get(f"/v1/records/{name}")
        assert answer.json()["key"] == record.key
        assert answer.json()["result"]["run_secs"] == list(record.result.run_secs)
        assert answer.json()["artefacts"] == {}
        assert answer.headers["cache-control"] == "no-cache", "files may still come"
    before = answer.headers["etag"]
    [file] = store.add_artefacts(record.key, OBJECT)
    answer = api.get(f"/v1/records/{record.key}")
    assert answer.json()["artefacts"]["object"]["key"] == f"sha256:{file.sha256}"
    assert answer.headers["etag"] != before
    assert "immutable" in answer.headers["cache-control"]


def test_a_record_that_gets_no_files_is_immutable_at_once(
    api: TestClient, store: Store, workload: Workload
) -> None:
    keep_best(store, workload)
    record = make_record(workload, trial=9, level="quick")
    store.add([record])
    assert "immutable" in api.get(f"/v1/records/{record.key}").headers["cache-control"]


def test_an_answer_names_its_files(api: TestClient, store: Store, workload: Workload) -> None:
    record = keep_best(store, workload)
    bare_key = api.get(url(workload))
    assert bare_key.json()["artefacts"] == {}
    store.add_artefacts(record.key, OBJECT)
    answer = api.get(url(workload), headers={"If-None-Match": bare_key.headers["etag"]})
    file = answer.json()["artefacts"]["object"]
    assert (file["name"], file["bytes"]) == ("matmul.o", 7)
    assert api.get(file["url"]).content == OBJECT[0].data
    found, missing = ask(api, [MATMUL, "matmul:M=9,N=9,K=9"])
    assert found["answer"]["artefacts"] == {"object": file}
    assert not missing["found"]


def test_blobs_are_served_by_their_hash_and_never_run_by_a_browser(
    api: TestClient, store: Store
) -> None:
    data = b"\x7fELF..."
    key = store.put_blob(data, "application/x-object")
    assert key == hashlib.sha256(data).hexdigest()
    answer = api.get(f"/v1/blobs/sha256:{key}")
    assert answer.content == data
    assert answer.headers["content-type"] == "application/x-object"
    assert answer.headers["content-disposition"] == "attachment"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_who_names_the_tag_of_what_never_changes_has_it(
    api: TestClient, store: Store, workload: Workload
) -> None:
    record = keep_best(store, workload)
    store.add_artefacts(record.key, OBJECT)
    key = store.put_blob(b"\x7fELF...", "application/x-object")
    for path in (f"/v1/records/{record.key}", f"/v1/blobs/sha256:{key}"):
        first = api.get(path)
        same = api.get(path, headers={"If-None-Match": f'"other", W/{first.headers["etag"]}'})
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["etag"] == first.headers["etag"]
        assert "immutable" in same.headers["cache-control"]
        assert api.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    assert api.get("/v1/blobs/" + "f" * 64, headers={"If-None-Match": "*"}).status_code == 404


def test_a_record_whose_files_may_still_come_is_sent_again(
    api: TestClient, store: Store, workload: Workload
) -> None:
    record = keep_best(store, workload)
    first = api.get(f"/v1/records/{record.key}")
    store.add_artefacts(record.key, OBJECT)
    tags = {"If-None-Match": first.headers["etag"]}
    assert api.get(f"/v1/records/{record.key}", headers=tags).status_code == 200


def test_answers_are_counted_by_grade(api: TestClient, store: Store, workload: Workload) -> None:
    keep_best(store, workload)
    ask(api, [MATMUL, "matmul:M=9,N=9,K=9"])
    text = api.get("/metrics").text
    assert 'tilewright_answers_total{grade="exact"} 1.0' in text
    assert 'tilewright_answers_total{grade="none"} 1.0' in text


@pytest.mark.parametrize(
    ("text", "yes"),
    [("a" * 64, True), ("sha256:" + "0" * 64, True), ("A" * 64, False), ("a", False)],
)
def test_what_is_a_key(text: str, yes: bool) -> None:
    assert lookup.is_key(text) is yes
