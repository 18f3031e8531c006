"""Around every request: an id, a count, a check of the Host header."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from fastapi import FastAPI, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import BadRequest, problem_of
from service.http.metrics import Metrics
from service.http.problems import problem_response

LOCAL_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]", "::1", "testserver"})


class RequestContext:
    """Gives each request an id and counts its answer, streams included.

    With `local_only`, a request whose Host is no name of this machine is refused: a web page
    elsewhere must not reach a service without keys by pointing its own name at 127.0.0.1.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        local_only: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._local_only = local_only
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        request_id = uuid.uuid4().hex
        request.state.request_id = request_id
        start = self._clock()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-request-id", request_id.encode()))
                route = getattr(scope.get("route"), "path", "unmatched")
                secs = self._clock() - start
                method = scope["method"] if route != "unmatched" else "other"
                self._metrics.request(method, route, message["status"], secs)
            await send(message)

        host = request.headers.get("host", "")
        if self._local_only and not _is_local(host):
            error = BadRequest(f"Host {host[:80]!r} is not a name of this machine", code="bad_host")
            await problem_response(problem_of(error), request)(scope, receive, counted)
            return
        await self._app(scope, receive, counted)


def _is_local(host: str) -> bool:
    name = host if host.startswith("[") else host.rsplit(":", 1)[0]
    if name.startswith("["):
        name = name.split("]")[0] + "]"
    return name.lower() in LOCAL_NAMES


def install(app: FastAPI, metrics: Metrics, *, local_only: bool) -> None:
    """Add the middleware to `app`."""
    app.add_middleware(RequestContext, metrics=metrics, local_only=local_only)
