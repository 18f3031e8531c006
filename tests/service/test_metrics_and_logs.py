"""What an operator sees: counters, one line a request with its ids, spans where recorded."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from fastapi.testclient import TestClient

from db import Store
from service import logs, telemetry
from service.http.app import create_app
from service.jobs.supervisor import WorkerHealth
from service.jobs.tally import Tally
from service.settings import Settings
from tests.service.service_cases import HOST, MATMUL


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


def test_a_worker_that_is_not_ready_makes_the_service_not_ready(store: Store) -> None:
    health = WorkerHealth(ready=False, pid=None, deaths=9, reason="the worker died 9 times")
    with TestClient(create_app(Settings(), store, lambda: health)) as api:
        told = api.get("/readyz")
        assert told.status_code == 503
        assert "the worker died 9 times" in told.json()["detail"]
        assert api.get("/healthz").status_code == 200


def test_spans_are_made_where_opentelemetry_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    spans: list[tuple[str, dict[str, Any]]] = []

    class Span:
        def set_attribute(self, key: str, value: Any) -> None:
            spans[-1][1][key] = value

    class Tracer:
        @contextmanager
        def start_as_current_span(self, name: str) -> Iterator[Span]:
            spans.append((name, {}))
            yield Span()

    module = types.ModuleType("opentelemetry.trace")
    module.get_tracer = lambda name: Tracer()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "opentelemetry", types.ModuleType("opentelemetry"))
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)
    telemetry._tracer.cache_clear()
    try:
        with telemetry.span("job", job_id="01X"):
            pass
    finally:
        telemetry._tracer.cache_clear()
    assert spans == [("tilewright.job", {"tilewright.job_id": "01X"})]
