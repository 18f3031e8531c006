"""Counters for Prometheus, one registry an application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

if TYPE_CHECKING:
    from db import Store


class Metrics:
    """`tilewright_http_*` by method, route and status; what the store holds, read at scrape."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "tilewright_http_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "tilewright_http_request_seconds",
            "Time to the first byte of the answer, in seconds.",
            ["method", "route"],
            registry=self._registry,
        )
        self._answers = Counter(
            "tilewright_answers",
            "Answers to questions for the best schedule, by grade; `none` for a miss.",
            ["grade"],
            registry=self._registry,
        )
        self._records = Gauge("tilewright_records", "Records stored.", registry=self._registry)
        self._jobs = Gauge(
            "tilewright_open_jobs", "Jobs not finished, by state.", ["state"],
            registry=self._registry,
        )  # fmt: skip

    def request(self, method: str, route: str, status: int, secs: float) -> None:
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(method, route).observe(secs)

    def answer(self, grade: str) -> None:
        self._answers.labels(grade).inc()

    def exposition(self, store: Store) -> bytes:
        """The text format, with the store's counts of this moment."""
        from service.jobs.counts import open_jobs

        self._records.set(store.counts().records)
        for state, count in open_jobs(store).items():
            self._jobs.labels(state).set(count)
        return generate_latest(self._registry)
