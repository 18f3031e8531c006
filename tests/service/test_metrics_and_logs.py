"""What an operator sees: counters, one line a request with its ids, spans where recorded."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi.testclient import TestClient
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tests.support.service.access import bearer, keyring_of, make_key
from tests.support.service.records import HOST, MATMUL
from tilewright.db import Store
from tilewright.db.errors import StoreFull, StoreUnreachable
from tilewright.schedules.errors import TilewrightError
from tilewright.service import logs, telemetry
from tilewright.service.http.app import create_app
from tilewright.service.http.metrics import JobAges, Metrics
from tilewright.service.http.middleware import RequestContext
from tilewright.service.http.wait_time import wait_time_of
from tilewright.service.jobs import tuning
from tilewright.service.jobs.counters import Counters
from tilewright.service.jobs.run import JobContext
from tilewright.service.jobs.supervisor import WorkerHealth
from tilewright.service.jobs.worker import Worker
from tilewright.service.limits import RequestLimits
from tilewright.service.resolve import targets, toolchains, workloads
from tilewright.service.settings import Settings
from tilewright.tuner.session.report import TuneReport


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
    assert [line["outcome"] for line in (first, second, third)] == ["ok", "ok", "not_found"]
    assert all(line["secs"] >= 0 for line in (first, second, third))


def test_a_request_id_that_could_forge_a_line_is_not_taken(api: TestClient) -> None:
    answer = api.get("/healthz", headers={"X-Request-ID": 'a" b'})
    assert re.fullmatch("[0-9a-f]{32}", answer.headers["x-request-id"])


def test_the_end_of_a_job_is_one_line_with_its_id_and_outcome(
    store: Store, lines: io.StringIO
) -> None:
    with TestClient(create_app(Settings(), store)) as api:
        made = api.post("/v1/jobs", json={"workload": MATMUL, "target": HOST.to_json()}).json()
    worker = Worker(JobContext(store, 5.0, threading.Event(), run=_no_candidate), "w", 0.01)
    assert worker.work_once()
    told = [json.loads(line) for line in lines.getvalue().splitlines()]
    of_job = [line for line in told if line["logger"] == "tilewright.worker"]
    assert all(line["job_id"] == made["id"] for line in of_job)
    assert (of_job[-1]["outcome"], of_job[-1]["code"]) == ("FAILED", "invalid")
    assert 0 <= of_job[-1]["secs"] <= of_job[-1]["elapsed_secs"]


def _record(text: str, *values: object, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("tilewright.test", level, __file__, 1, text, values, None)


def test_what_goes_wrong_again_and_again_is_a_line_a_period_with_a_count() -> None:
    now = [0.0]
    repeats = logs.WarningThrottle(30.0, clock=lambda: now[0])
    written: list[logging.LogRecord] = []
    for _ in range(1200):  # two minutes of ten lines a second, with numbers that differ
        now[0] += 0.1
        record = _record("full: %s; again in %g s", "disk", now[0])
        written += [one for one, _ in repeats.written(record)]
    assert len(written) == 4
    assert sum(getattr(one, "repeated", 0) for one in written) >= 890
    assert [hasattr(one, "repeated") for one in written] == [False, True, True, True]
    now[0] += 30.0
    last = [one for one, _ in repeats.written(_record("well again", level=logging.INFO))]
    assert [one.getMessage() for one in last][-1] == "well again"
    assert getattr(last[0], "repeated", 0) > 0, "what was counted last is told"
    now[0] += 31.0
    assert len(repeats.written(_record("full: %s; again in %g s", "disk", 1))) == 1, "news again"


def test_other_warnings_are_written_while_one_repeats() -> None:
    repeats = logs.WarningThrottle(30.0, clock=lambda: 0.0)
    for job in "abc":
        assert len(repeats.written(_record("job %s: lost", job))) == 1
    assert repeats.written(_record("job %s: lost", "a")) == []
    for job in "defghijk":
        repeats.written(_record("job %s: lost", job))
    assert repeats.written(_record("job %s: lost", "z")) == [], "very many are one kind"
    assert len(repeats.written(_record("something else"))) == 1
    for _ in range(3):
        assert len(repeats.written(_record("told", level=logging.INFO))) == 1


def test_a_count_is_written_with_the_fields_of_what_it_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whichever thread has it written."""
    out, now = io.StringIO(), [0.0]
    monkeypatch.setattr(sys, "stderr", out)
    monkeypatch.setattr(
        logs, "WarningThrottle", partial(logs.WarningThrottle, clock=lambda: now[0])
    )
    logs.configure(as_json=True)
    log = logging.getLogger("tilewright.test")
    for _ in range(3):
        with logs.bound(job_id="one"):
            log.warning("no room")
    now[0] = 31.0
    with logs.bound(request_id="another"):
        log.warning("something else")
    first, counted, other = (json.loads(line) for line in out.getvalue().splitlines())
    assert (first["job_id"], counted["job_id"], counted["repeated"]) == ("one", "one", 2)
    assert "request_id" not in counted
    assert other["request_id"] == "another"


def test_a_full_disk_is_told_now_and_then_with_the_job_and_tried_less_often(
    store: Store, lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat of a job, which looks four times a second, and whatever else writes."""
    with TestClient(create_app(Settings(preparers=0), store)) as api:
        made = api.post("/v1/jobs", json={"workload": MATMUL, "target": HOST.to_json()}).json()
    tries: list[float] = []
    full = threading.Event()

    def no_room(*_args: object, **_more: object) -> None:
        tries.append(time.monotonic())
        raise StoreFull("no room left")

    def run(*args: Any, **steering: Any) -> TuneReport:
        for name in ("report_job", "renew_lease"):
            monkeypatch.setattr(store, name, no_room)
        steering["control"].waiting("another job's turn")
        full.wait(3.0)
        monkeypatch.undo()
        raise TilewrightError("nothing can be measured here")

    context = JobContext(store, 6.0, threading.Event(), run=run)
    worker = Worker(context, "w", 0.01)
    assert worker.work_once()
    told = [json.loads(line) for line in lines.getvalue().splitlines()]
    missed = [line for line in told if "heartbeat missed" in line["event"]]
    assert len(missed) == 1
    assert missed[0]["job_id"] == made["id"]
    assert 2 <= len(tries) <= 6, "four a second would be twelve"


def test_a_flood_is_counted_rather_than_written() -> None:
    now = [0.0]
    flood = logs.LineLimit(3, clock=lambda: now[0])
    assert [flood.admit()[0] for _ in range(10)] == [True] * 3 + [False] * 7
    now[0] = 1.0
    assert flood.admit() == (True, 7)
    assert flood.admit() == (True, 0)


def test_metrics_know_trials_jobs_queue_and_errors(store: Store) -> None:
    health = WorkerHealth(ready=True, pid=1, deaths=2)
    app = create_app(Settings(), store, lambda: health)
    now = [100.0]
    counters = Counters(clock=lambda: now[0])
    for status in ("ok", "ok", "run_timeout"):
        counters.trial(status)
    counters.job("SUCCEEDED", 3.0, 2.0)
    counters.store_error()
    counters.machine_wait("one", waits=True)
    now[0] = 102.5
    app.state.service.metrics.worker_counts(json.loads(json.dumps(counters.take())))
    with TestClient(app) as api:
        api.post("/v1/jobs", json={"workload": MATMUL, "target": HOST.to_json()})
        text = api.get("/metrics").text
    for line in (
        'tilewright_trials_total{status="ok"} 2.0',
        'tilewright_trials_total{status="run_timeout"} 1.0',
        'tilewright_job_seconds_sum{state="SUCCEEDED"} 3.0',
        'tilewright_job_run_seconds_sum{state="SUCCEEDED"} 2.0',
        "tilewright_machine_wait_seconds_total 2.5",
        'tilewright_role{role="standby"} 1.0',
        'tilewright_role{role="leader"} 0.0',
        "tilewright_store_errors_total 1.0",
        "tilewright_queue_length 1.0",
        "tilewright_worker_up 1.0",
        "tilewright_worker_deaths 2.0",
        'tilewright_http_request_seconds_count{method="POST",route="/v1/jobs"} 1.0',
    ):
        assert line in text
    now[0] = 103.0
    counters.machine_wait("one", waits=False)
    now[0] = 110.0
    told = {"trials": {}, "jobs": [], "store_errors": 0, "machine_wait_secs": 0.5}
    assert counters.take() == told, "told once, and no more is waited for"


def test_versions_are_labels_of_a_metric(api: TestClient) -> None:
    text = api.get("/metrics").text
    [line] = [one for one in text.splitlines() if one.startswith("tilewright_build_info{")]
    labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
    assert labels.keys() == {"version", "llvm", "llvmlite", "codegen", "python"}
    assert all(labels.values())
    assert labels["llvm"] == toolchains.real_toolchain().llvm


def http_sums(text: str) -> dict[tuple[str, str], float]:
    """The sums of the HTTP histograms in seconds, by metric and route."""
    return {
        (name, route): float(value)
        for name, labels, value in re.findall(
            r"^(tilewright_http\w+_sum)\{(.*)\} (\S+)$", text, re.M
        )
        for route in re.findall(r'route="([^"]*)"', labels)
    }


def test_waits_for_a_job_and_for_an_answer_are_told(store: Store) -> None:
    """A long poll, and a question that waits for its answer to be prepared."""
    app = create_app(
        Settings(preparers=0, limits=replace(RequestLimits(), default_secs=0.6)), store
    )
    with TestClient(app) as api:
        made = api.post("/v1/jobs", json={"workload": MATMUL, "target": "native"}).json()
        api.get(f"/v1/jobs/{made['id']}?wait=600ms")
        names = made["workload"]["key"], made["target"]["key"]
        tuning.register(store, workloads.workload_of(MATMUL), targets.target_of("native", 1))
        asked = api.get(f"/v1/best/{names[0]}/{names[1]}?min_grade=default")
        assert asked.status_code == 202
        found = http_sums(api.get("/metrics").text)
    for route in ("/v1/jobs/{job_id}", "/v1/best/{workload_key}/{target_key}"):
        assert found["tilewright_http_wait_seconds_sum", route] >= 0.3


def test_what_is_waited_on_purpose_is_no_latency() -> None:
    now = [100.0]

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path="/slow")
        now[0] += 1.0
        with wait_time_of(scope).on_purpose():
            now[0] += 30.0
        now[0] += 2.0
        await Response("done")(scope, receive, send)

    metrics = Metrics()
    app = RequestContext(slow, metrics=metrics, clock=lambda: now[0])
    assert TestClient(app).get("/slow").status_code == 200
    found = http_sums(metrics.exposition(None, version="1", with_store=False).decode())
    assert found["tilewright_http_wait_seconds_sum", "/slow"] == pytest.approx(30.0)
    assert found["tilewright_http_request_seconds_sum", "/slow"] == pytest.approx(3.0)


def test_ages_go_by_a_clock_that_nobody_sets() -> None:
    seconds, day = [50.0], [datetime(2026, 1, 1, tzinfo=UTC)]
    ages = JobAges(clock=lambda: seconds[0], now=lambda: day[0])
    came = day[0] - timedelta(seconds=20)
    assert ages.of({"QUEUED": ("a", came)}) == {"QUEUED": 20.0}
    seconds[0], day[0] = 55.0, datetime(2020, 1, 1, tzinfo=UTC)
    assert ages.of({"RUNNING": ("a", came), "QUEUED": ("b", came)}) == {
        "RUNNING": 25.0,
        "QUEUED": 0.0,
    }
    assert ages.of({}) == {}


def test_the_age_of_the_queue_and_the_size_of_the_database_are_told(store: Store) -> None:
    with TestClient(create_app(Settings(database_bytes=10**9), store)) as api:
        assert 'tilewright_oldest_job_seconds{state="QUEUED"} 0.0' in api.get("/metrics").text
        api.post("/v1/jobs", json={"workload": MATMUL, "target": HOST.to_json()})
        time.sleep(0.05)
        text = api.get("/metrics").text
    found = dict(re.findall(r"^(tilewright_\S+) (\S+)$", text, re.M))
    assert float(found['tilewright_oldest_job_seconds{state="QUEUED"}']) >= 0.05
    assert float(found["tilewright_database_bytes"]) == store.used_bytes() > 0
    assert float(found["tilewright_database_limit_bytes"]) == 10**9
    assert found['tilewright_preparations{state="WANTED"}'] == "0.0"


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
    worker = Worker(JobContext(store, 5.0, threading.Event(), run=_no_candidate), "w", 0.01)
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
