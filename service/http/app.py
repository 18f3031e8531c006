"""The API as an ASGI application."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from service.http import middleware, problems
from service.http.docs_page import docs_page
from service.http.feeds import Feeds
from service.http.metrics import Metrics
from service.http.request_log import RequestLog
from service.http.routes import best, health, jobs, stored
from service.http.schemas import request_schemas
from service.http.state import Gate, ServiceState
from service.identity import FileIdentity
from service.jobs.supervisor import WorkerHealth
from service.settings import Settings

if TYPE_CHECKING:
    from db import Store

API_VERSION = "1"


def create_app(
    settings: Settings,
    store: Store,
    worker: Callable[[], WorkerHealth | None] = lambda: None,
) -> FastAPI:
    """The API over `store`, which stays the caller's to close. No job runs in this process;
    `worker` tells how the one beside it does."""
    app = FastAPI(
        title="Tilewright",
        version=API_VERSION,
        summary="Tuned schedules for tensor expressions: ask for the best, or have one found.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    metrics = Metrics()
    stopping = threading.Event()
    app.state.service = ServiceState(
        settings=settings,
        store=store,
        metrics=metrics,
        streams=Gate(settings.limits.event_streams),
        stopping=stopping,
        feeds=Feeds(store, stopping.is_set),
        identity=FileIdentity(store.path),
        worker=worker,
    )
    problems.install(app)
    middleware.install(app, metrics, local_only=settings.loopback)
    app.add_middleware(RequestLog)
    for module in (jobs, best, stored, health):
        app.include_router(module.router)

    describe = app.openapi

    def openapi() -> dict[str, Any]:
        document = describe()
        document["components"]["schemas"].update(request_schemas())
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()), headers={"X-Content-Type-Options": "nosniff"})

    return app
