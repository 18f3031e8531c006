"""The API against its own description: generated requests get documented answers, never a 5xx."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema  # it has no stubs
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.support.paths import ROOT
from tests.support.service.records import HOST, MATMUL, keep_best
from tests.support.times import TIMES
from tilewright.db import open_store
from tilewright.db.values.records import ArtefactFile
from tilewright.schedules.trace import Trace
from tilewright.service.answers import analytic
from tilewright.service.http.app import create_app
from tilewright.service.jobs.request import read_job
from tilewright.service.limits import RequestLimits
from tilewright.service.resolve import workloads
from tilewright.service.settings import Settings

schemathesis = pytest.importorskip("schemathesis", reason="pip install 'tilewright[dev]'")
checks = pytest.importorskip("schemathesis.checks")

pytestmark = pytest.mark.timeout(300 * TIMES)
EXAMPLES = 12 * TIMES  # 300 cases in all; TIMES=7: 2,100, TIMES=67: 20,000
OBJECT = ArtefactFile("object", "matmul.o", "application/x-object", b"\x7fELF")
BY_NAME = {"cancelJob", "followJob", "readRecord", "readBlob"}  # any text is a valid name
OPERATIONS = BY_NAME | {
    "submitJob", "listJobs", "readJob", "listTrials", "readBest", "lookUpBest",
    "buildKernel", "checkPins", "publishRecords", "getFleet",
}  # fmt: skip
MODES = {
    "positive": OPERATIONS - {"buildKernel", "checkPins"},  # compiled; entries of lock files
    "negative": OPERATIONS - BY_NAME - {"getFleet"},  # which takes nothing
    "known": OPERATIONS
    - {"submitJob", "listJobs", "lookUpBest", "buildKernel", "checkPins", "publishRecords"},
}
"""Valid requests, requests that break the description, valid ones for things that are there."""
CASES = [(mode, name) for mode, names in MODES.items() for name in sorted(names)]


def as_lines(_context: Any, value: Any) -> bytes:
    """A generated body as it is sent."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text.encode(errors="replace")


schemathesis.serializer("application/x-ndjson")(as_lines)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, dict[str, str]]]:
    """The description of an API over a database that holds one of everything, and its names."""
    folder = tmp_path_factory.mktemp("openapi")
    with open_store(str(folder / "store.sqlite")) as store:
        record = keep_best(store, workloads.workload_of(MATMUL))
        [file] = store.add_artefacts(
            record.key, [ArtefactFile("object", "m.o", "application/x-object", b"x")]
        )
        document = {"workload": MATMUL, "target": HOST.to_json()}
        request = read_job(document, Settings()).to_json()
        job, _ = store.create_job(request, body_hash="x", flight_key="x")
        store.request_cancel(job.id)  # finished, so that its events end
        names = {
            "workload_key": record.workload_key,
            "target_key": record.target_key,
            "job_id": job.id,
            "record": record.key,
            "blob": file.sha256,
        }
        limits = RequestLimits(default_secs=0.0, lookup_secs=0.0)
        settings = Settings(poll_secs=0.01, heartbeat_secs=0.05, preparers=0, limits=limits)
        app = create_app(settings, store)
        yield schemathesis.openapi.from_asgi("/openapi.json", app), names


@pytest.mark.parametrize(("mode", "operation_id"), CASES)
def test_every_answer_is_a_documented_one(
    described: tuple[Any, dict[str, str]],
    mode: str,
    operation_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(analytic, "default_schedule", lambda *_: analytic.Chosen(Trace()))
    schema, names = described
    generation = schemathesis.GenerationMode("negative" if mode == "negative" else "positive")
    cases = schema.find_operation_by_id(operation_id).as_strategy(generation_mode=generation)
    known = {**names, "key": names["blob" if operation_id == "readBlob" else "record"]}

    @seed(20261121)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def answers(case: Any) -> None:
        if mode == "known":
            case.path_parameters = {name: known[name] for name in case.path_parameters}
        case.call_and_validate(
            checks=[
                checks.not_a_server_error,
                checks.status_code_conformance,
                checks.content_type_conformance,
                checks.response_schema_conformance,
            ]
        )

    answers()


def test_every_operation_is_tried(described: tuple[Any, dict[str, str]]) -> None:
    schema, _ = described
    operations = {
        operation["operationId"]
        for path, methods in schema.raw_schema["paths"].items()
        for operation in methods.values()
        if path.startswith("/v1")
    }
    assert operations == OPERATIONS


def test_the_document_says_who_may_and_what_a_workload_is(
    described: tuple[Any, dict[str, str]],
) -> None:
    schema, _ = described
    document = schema.raw_schema
    assert document["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    jobs = document["paths"]["/v1/jobs"]
    assert jobs["post"]["security"] == [{"key": ["submit"]}]
    assert jobs["get"]["security"] == [{"key": ["read"]}]
    assert {"401", "403", "408", "429"} <= set(jobs["post"]["responses"])
    assert document["paths"]["/healthz"]["get"]["security"] == []
    schemas = document["components"]["schemas"]
    jsonschema.Draft202012Validator.check_schema(schemas["Workload"])
    root = {"$ref": "#/components/schemas/JobIn", "components": {"schemas": schemas}}
    valid = jsonschema.Draft202012Validator(root)
    matmul = workloads.workload_of(MATMUL)
    notation = {"expr": "C[i,j] += A[i,k] * B[k,j]", "tensors": {"A": "f32[8,8]", "B": "f32[8,8]"}}
    spellings: tuple[Any, ...] = (MATMUL, matmul.to_json(), notation)
    for workload in spellings:
        valid.validate({"workload": workload, "target": HOST.to_json()})
    no_workloads: tuple[Any, ...] = ({}, {"expr": 3}, {"stages": []}, 7)
    for wrong in no_workloads:
        assert not valid.is_valid({"workload": wrong})


def test_every_reference_leads_somewhere(described: tuple[Any, dict[str, str]]) -> None:
    schema, _ = described
    text = json.dumps(schema.raw_schema)
    names = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert names <= set(schema.raw_schema["components"]["schemas"])
    assert "$defs" not in text
    assert {"Wait", "PageToken", "JobId", "Key", "Workload"} <= names


def test_the_package_has_the_schema_of_the_documentation() -> None:
    from importlib import resources

    packed = (
        resources.files("tilewright.service.http")
        .joinpath("workload.schema.json")
        .read_text("utf-8")
    )
    assert packed == (ROOT / "docs" / "workload.schema.json").read_text("utf-8")
