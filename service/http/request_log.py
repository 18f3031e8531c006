"""One log line and one span per request, with the `request_id` of the response."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewright.service import logs, telemetry
from tilewright.service.http.wait_time import wait_time_of

log = logging.getLogger("tilewright.http")

LINES_A_SECOND = 50
"""The limit on log lines. More lines would cost more than the responses. The next line has the
number of omitted lines."""

UNAVAILABLE = frozenset({502, 503, 507})
"""Statuses that are not bugs: the database is unreachable or full."""

_TRACE_HEADERS = frozenset({b"traceparent", b"tracestate", b"baggage"})
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_JOB = re.compile(r"^(?:/v1)?/jobs/([0-9A-Z]{26})(?![0-9A-Z])")


class RequestLog:
    """The outermost middleware: gives each request its id (the caller's `X-Request-ID` if valid)
    and logs the response. Every log line of the request has the id."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        clock: Callable[[], float] = time.perf_counter,
        flood: logs.LineLimit | None = None,
    ) -> None:
        self._app = app
        self._clock = clock
        self._flood = flood or logs.LineLimit(LINES_A_SECOND)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given_id(scope) or uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        start = self._clock()
        with (
            logs.bound(request_id=request_id),
            telemetry.span("request", _trace_headers(scope), request_id=request_id) as span,
        ):

            async def logged_send(message: Message) -> None:
                await send(message)
                if message["type"] == "http.response.start":
                    if span is not None:
                        _describe(span, scope, message)
                    self._log(scope, message, request_id, self._clock() - start)

            await self._app(scope, receive, logged_send)

    def _log(self, scope: Scope, message: Message, request_id: str, secs: float) -> None:
        status = message["status"]
        is_logged, dropped = self._flood.admit()
        is_bug = status >= 500 and status not in UNAVAILABLE
        if not is_logged and not is_bug:
            return
        fields: dict[str, object] = {
            "request_id": request_id,
            "method": scope["method"],
            "path": scope["path"][:200],
            "route": _route(scope),
            "status": status,
            "outcome": _outcome(scope, status),
            "secs": round(secs, 6),
        }
        waited_secs = wait_time_of(scope).secs
        if waited_secs is not None:
            fields["waited_secs"] = round(waited_secs, 6)
        job_id = _job_id(scope, message)
        if job_id:
            fields["job_id"] = job_id
        if dropped:
            fields["requests_not_logged"] = dropped
        log.log(logging.WARNING if is_bug else logging.INFO, "request", extra=fields)


def _outcome(scope: Scope, status: int) -> str:
    """Return `ok`, or the code of the problem."""
    code = scope["state"].get("problem_code")
    return str(code) if code else "ok" if status < 400 else f"http_{status}"


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path", "unmatched"))


def _describe(span: Any, scope: Scope, message: Message) -> None:
    """Set the span's attributes, with the names of OpenTelemetry's conventions."""
    span.set_attribute("http.request.method", scope["method"])
    span.set_attribute("http.route", _route(scope))
    span.set_attribute("http.response.status_code", message["status"])
    job_id = _job_id(scope, message)
    if job_id:
        span.set_attribute("tilewright.job_id", job_id)


def _trace_headers(scope: Scope) -> dict[str, str]:
    return {
        name.decode("latin-1"): value.decode("latin-1")
        for name, value in scope["headers"]
        if name in _TRACE_HEADERS
    }


def _given_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ID.fullmatch(value):
            return str(value, "ascii")
    return ""


def _job_id(scope: Scope, message: Message) -> str:
    """Return the job in the request's path, or the job that the request created, or ""."""
    location = dict(message["headers"]).get(b"location", b"").decode("latin-1")
    found = _JOB.search(scope["path"]) or _JOB.search(location)
    return found[1] if found else ""
