"""What an operator sees: counters, one line a request with its ids, spans where recorded."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from db import Store
from db.errors import StoreUnreachable
from schedules.errors import TilewrightError
from service import logs, telemetry
from service.http.app import create_app
from service.jobs.run import Means
from service.jobs.supervisor import WorkerHealth
from service.jobs.tally import Tally
from service.jobs.worker import Worker
from service.settings import Settings
from tests.service.access_cases import bearer, make_key
from tests.service.service_cases import HOST, MATMUL
from tests.service.test_keys_cli import keyring_of
from tuner.session.report import TuneReport


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What is logged, as `serve` writes it to a file."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    logs.configure(as_json=True)
    ours, root.handlers = root.handlers[0], handlers
    root.addHandler(ours)
    try:
        yield out
    finally:
        root.removeHandler(ours)
        root.setLevel(level)


def requests_in(lines: io.StringIO) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [line for line in found if line["event"] == "request"]


def test_every_request_is_one_line_with_its_ids(api: TestClient, lines: io.StringIO) -> None:
    made = api.post("/v1/jobs", json={"workload": MATMUL, "target": HOST.to_json()})
    job_id = made.json()["id"]
    api.get(f"/v1/jobs/{job_id}", headers={"X-Request-ID": "mine-1"})
    missing = api.get("/v1/jobs/" + "0" * 26)
    first, second, third = requests_in(lines)
    assert first["request_id"] == made.headers["x-request-id"]
    assert first["job_id"] == second["job_id"] == job_id
    assert (first["method"], first["route"], first["status"]) == ("POST", "/v1/jobs", 202)
    assert second["request_id"] == "mine-1"
    assert third["status"] == 404
    assert third["request_id"] == missing.json()["request_id"]
    assert all(line["secs"] >= 0 for line in (first, second, third))


def test_a_request_id_that_could_forge_a_line_is_not_taken(api: TestClient) -> None:
    answer = api.get("/healthz", headers={"X-Request-ID": 'a" b'})
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


def test_a_flood_is_counted_rather_than_written() -> None:
    now = [0.0]
    flood = logs.Flood(3, clock=lambda: now[0])
    assert [flood.admit()[0] for _ in range(10)] == [True] * 3 + [False] * 7
    now[0] = 1.0
    assert flood.admit() == (True, 7)
    assert flood.admit() == (True, 0)


def test_metrics_know_trials_jobs_queue_and_errors(store: Store) -> None:
    health = WorkerHealth(ready=True, pid=1, deaths=2)
    app = create_app(Settings(), store, lambda: health)
    tally = Tally()
    for status in ("ok", "ok", "run_timeout"):
        tally.trial(status)
    tally.job("SUCCEEDED", 3.0)
    tally.store_error()
    app.state.service.metrics.worker_counts(json.loads(json.dumps(tally.take())))
    with TestClient(app) as api:
        api.post("/v1/jobs", json={"workload": MATMUL, "target": HOST.to_json()})
        text = api.get("/metrics").text
    for line in (
        'tilewright_trials_total{status="ok"} 2.0',
        'tilewright_trials_total{status="run_timeout"} 1.0',
        'tilewright_job_seconds_count{state="SUCCEEDED"} 1.0',
        "tilewright_store_errors_total 1.0",
        "tilewright_queue_length 1.0",
        "tilewright_worker_up 1.0",
        "tilewright_worker_deaths 2.0",
        'tilewright_http_request_seconds_count{method="POST",route="/v1/jobs"} 1.0',
    ):
        assert line in text
    assert tally.take() == {"trials": {}, "jobs": [], "store_errors": 0}, "told once"


def test_metrics_are_there_while_the_database_is_not(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just then somebody wants to know: counters are the process' own."""
    key = make_key(store)
    health = WorkerHealth(ready=False, pid=1, deaths=1)
    app = create_app(Settings(preparers=0), store, lambda: health)

    def away(*_: object) -> None:
        raise StoreUnreachable("the database does not answer")

    with TestClient(app) as api:
        there = api.get("/metrics", headers=bearer(key)).text
        assert "tilewright_records 0.0" in there
        keyring_of(app)._fresh_secs = 0.0  # as if the last scrape were some time ago
        monkeypatch.setattr(store, "keys", away)
        monkeypatch.setattr(store, "counts", away)
        told = api.get("/metrics", headers=bearer(key))
        assert told.status_code == 200
        assert "tilewright_store_errors_total 1.0" in told.text
        assert "tilewright_worker_up 0.0" in told.text
        for gauge in ("tilewright_records", "tilewright_open_jobs", "tilewright_queue_length"):
            assert gauge in there
            assert gauge not in told.text, "what it was is no answer"
        assert api.get("/metrics").status_code == 401
        new = f"tw_{'a' * 10}_{key.split('_')[2]}"
        assert api.get("/metrics", headers=bearer(new)).status_code == 503, "it may be a new key"
        monkeypatch.undo()
        assert "tilewright_records 0.0" in api.get("/metrics", headers=bearer(key)).text


def test_a_worker_that_is_not_ready_makes_the_service_not_ready(store: Store) -> None:
    health = WorkerHealth(ready=False, pid=None, deaths=9, reason="the worker died 9 times")
    with TestClient(create_app(Settings(), store, lambda: health)) as api:
        told = api.get("/readyz")
        assert told.status_code == 503
        assert "the worker died 9 times" in told.json()["detail"]
        assert api.get("/healthz").status_code == 200


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What OpenTelemetry's own SDK records."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(telemetry, "_tracer", lambda: provider.get_tracer("tilewright"))
    return exporter


def named(spans: InMemorySpanExporter, name: str) -> list[dict[str, Any]]:
    found = spans.get_finished_spans()
    return [dict(span.attributes or {}) for span in found if span.name == name]


def test_a_request_and_its_job_are_spans_with_the_same_id(
    store: Store, spans: InMemorySpanExporter
) -> None:
    with TestClient(create_app(Settings(), store)) as api:
        made = api.post("/v1/jobs", json={"workload": MATMUL, "target": HOST.to_json()})
    [request] = named(spans, "tilewright.request")
    assert request == {
        "tilewright.request_id": made.headers["x-request-id"],
        "tilewright.job_id": made.json()["id"],
        "http.request.method": "POST",
        "http.route": "/v1/jobs",
        "http.response.status_code": 202,
    }
    worker = Worker(Means(store, 5.0, threading.Event(), run=_no_candidate), "w", 0.01)
    assert worker.work_once()
    [job] = named(spans, "tilewright.job")
    assert job == {"tilewright.job_id": made.json()["id"], "tilewright.state": "FAILED"}


def _no_candidate(*_args: object, **_more: object) -> TuneReport:
    raise TilewrightError("nothing can be measured here")


def test_a_request_belongs_to_the_trace_of_its_caller(
    api: TestClient, spans: InMemorySpanExporter
) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    api.get("/healthz", headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    api.get("/healthz", headers={"traceparent": "nonsense"})
    first, second = (
        span for span in spans.get_finished_spans() if span.name == "tilewright.request"
    )
    assert first.context is not None
    assert f"{first.context.trace_id:032x}" == trace
    assert second.parent is None
