"""Middleware: request ids and counts, permitted hosts and origins, HEAD.

The layers from the outermost: `RequestContext`, CORS (if origins are listed), `OriginFilter`,
`HeadAsGet`, `GzipResponses`, `ConditionalResponses`, `Guard`, the routes. Responses pass them in
reverse order.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewright.schedules.errors import TilewrightError
from tilewright.service.access.exposure import keys_required
from tilewright.service.access.keyring import Keyring
from tilewright.service.errors import BadRequest, NotAllowed
from tilewright.service.http.caching import ConditionalResponses, GzipResponses
from tilewright.service.http.error_handlers import refusal
from tilewright.service.http.guard import Guard
from tilewright.service.http.metrics import Metrics
from tilewright.service.http.origins import TrustedProxies, from_elsewhere, host_names, host_of
from tilewright.service.http.state import ServiceState
from tilewright.service.http.wait_time import wait_time_of
from tilewright.service.settings import Settings

SENT_BY_PAGES = (
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-None-Match",
    "Last-Event-ID",
)
READ_BY_PAGES = ("ETag", "Location", "Retry-After", "X-Request-Id")


class RequestContext:
    """Adds an id to each response and counts the responses, streams included."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        request_id = getattr(request.state, "request_id", "") or uuid.uuid4().hex
        request.state.request_id = request_id
        start = self._clock()
        waiting = wait_time_of(scope, self._clock)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((b"x-request-id", request_id.encode()))
                route = getattr(scope.get("route"), "path", "unmatched")
                secs, waited_secs = self._clock() - start, waiting.secs
                method = scope["method"] if route != "unmatched" else "other"
                self._metrics.request(method, route, message["status"], secs - (waited_secs or 0.0))
                if waited_secs is not None:
                    self._metrics.waited(route, waited_secs)
            await send(message)

        await self._app(scope, receive, counted)


class OriginFilter:
    """Refuses requests with a foreign host name, and requests by pages of another origin."""

    def __init__(self, app: ASGIApp, *, settings: Settings) -> None:
        self._app = app
        self._names = host_names(settings)
        self._proxies = TrustedProxies(settings.trusted_proxy)
        self._origins = frozenset(settings.allow_origin)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        error = self._refused(request)
        if error is not None:
            await refusal(error, request)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refused(self, request: Request) -> TilewrightError | None:
        client = request.client.host if request.client is not None else ""
        host = host_of(request.headers, client, self._proxies)
        if not self._names.admit(host):
            return BadRequest(
                f"Host {host[:80]!r} is not a name of this service",
                code="bad_host",
                advice="If it should be, start the service with --allow-host NAME.",
            )
        page = from_elsewhere(request.method, request.headers, host, self._origins)
        if page is not None:
            return NotAllowed(
                f"pages of {page[:80]} may not use this service",
                code="foreign_origin",
                advice="If they should, start the service with --allow-origin ORIGIN.",
            )
        return None


class HeadAsGet:
    """Responds to HEAD like GET, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        scope["method"] = "GET"
        answered = False

        async def left() -> Message:
            # Nothing is sent after the head, so an event stream ends here.
            return {"type": "http.disconnect"} if answered else await receive()

        async def head(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                scope["method"] = "HEAD"  # as the outer middleware recorded it
                await send(message)
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._app(scope, left, head)


def install(app: FastAPI, state: ServiceState) -> None:
    """Add all middleware to `app`. The first one added is the innermost."""
    settings = state.settings
    keyring = Keyring(state.store, required=keys_required(settings))
    app.add_middleware(Guard, keyring=keyring, store=state.store, limits=settings.limits)
    app.add_middleware(ConditionalResponses)
    app.add_middleware(GzipResponses)
    app.add_middleware(HeadAsGet)
    app.add_middleware(OriginFilter, settings=settings)
    if settings.allow_origin:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allow_origin,
            allow_methods=("GET", "HEAD", "POST"),
            allow_headers=SENT_BY_PAGES,
            expose_headers=READ_BY_PAGES,
        )
    app.add_middleware(RequestContext, metrics=state.metrics)
