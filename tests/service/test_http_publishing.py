"""`POST /v1/records`: records of others come in as claims, as `tilewright import` takes them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.support.service.records import keep_best
from tilewright.db import Store, open_store
from tilewright.db.values.whole import RecordState, Selection
from tilewright.schedules.workload.workload import Workload
from tilewright.service.http.routes import publishing

HEADER = '{"format": "tilewright-records", "version": 1}\n'
LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture
def export(tmp_path: Path, workload: Workload) -> str:
    """What somebody else measured and exported."""
    with open_store(str(tmp_path / "theirs.sqlite")) as theirs:
        keep_best(theirs, workload)
        out = io.StringIO()
        assert theirs.export(out) == 1
    return out.getvalue()


def publish(api: TestClient, lines: str | bytes, status: int = 200) -> dict[str, Any]:
    answer = api.post("/v1/records", content=lines, headers=LINES)
    assert answer.status_code == status, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_what_is_published_is_a_claim_and_never_best(
    api: TestClient, store: Store, export: str, workload: Workload
) -> None:
    told = publish(api, export)
    assert told == {"new": 1, "known": 0, "refused": 0, "refusals": []}
    assert publish(api, export) == {**told, "new": 0, "known": 1}
    out = io.StringIO()
    assert store.export(out, Selection(state=RecordState.IMPORTED)) == 1
    assert store.export(io.StringIO(), Selection(state=RecordState.BEST)) == 0
    record = json.loads(out.getvalue().splitlines()[-1])["record"]
    path = f"/v1/best/{record['workload_key']}/{record['target_key']}"
    assert api.get(path).status_code in (202, 404), "no answer before it was verified here"
    [claim] = store.claims(record["workload_key"], record["target_key"])
    assert claim.verified_level == "imported"


def test_it_takes_what_import_takes(api: TestClient, tmp_path: Path, export: str) -> None:
    header, workload, target, record = export.splitlines()
    forged = record.replace('"trial":1', '"trial":2')
    assert forged != record
    lines = [header, "no JSON", record, workload, "", target, forged, '{"kind":"x"}', record]
    text = "\n".join(lines).encode() + b"\n\xff\n"
    told = publish(api, text)
    with open_store(str(tmp_path / "imported.sqlite")) as other:
        report = other.import_(text.decode(errors="surrogateescape").splitlines(keepends=True))
    assert (told["new"], told["known"]) == (report.added, report.known) == (1, 0)
    assert [(bad.line, bad.reason) for bad in report.bad] == [
        (line["line"], line["reason"]) for line in told["refusals"]
    ]
    assert told["refused"] == len(told["refusals"]) == 5
    assert "this record has the key" in told["refusals"][2]["reason"]


def test_what_is_no_export_is_refused_with_words(api: TestClient) -> None:
    assert publish(api, "{}\n", 422)["detail"].startswith("line 1: ")
    assert publish(api, " \n", 400)["code"] == "no_records"
    long = HEADER + json.dumps({"kind": "x" * 5_000}) + "\n"
    [line] = publish(api, long)["refusals"]
    assert len(line["reason"]) == publishing.MOST_REASON_CHARACTERS
    many = publish(api, HEADER + "\r" * publishing.MOST_LINES, 413)
    assert "several requests" in many["advice"]
    assert publish(api, HEADER + "x" * (1 << 20), 413)["code"] == "too_large"
    answer = api.post("/v1/records", json={})
    assert answer.status_code == 415
    assert "application/x-ndjson" in answer.json()["advice"]
