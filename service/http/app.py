"""The API as an ASGI application."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from service.http import middleware, problems
from service.http.docs_page import docs_page
from service.http.metrics import Metrics
from service.http.routes import best, builds, health, jobs, stored
from service.http.schemas import request_schemas
from service.http.state import Gate, ServiceState
from service.settings import Settings

if TYPE_CHECKING:
    from db import Store

API_VERSION = "1"


def create_app(settings: Settings, store: Store) -> FastAPI:
    """The API over `store`, which stays the caller's to close. No job runs in this process."""
    app = FastAPI(
        title="Tilewright",
        version=API_VERSION,
        summary="Tuned schedules for tensor expressions: ask for the best, or have one found.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    metrics = Metrics()
    app.state.service = ServiceState(
        settings=settings,
        store=store,
        metrics=metrics,
        streams=Gate(settings.limits.event_streams),
        stopping=threading.Event(),
    )
    problems.install(app)
    middleware.install(app, metrics, local_only=settings.loopback)
    for module in (jobs, best, builds, stored, health):
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
