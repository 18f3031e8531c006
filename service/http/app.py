"""The API as an ASGI application."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

from service.http import middleware, problems
from service.http.docs_page import docs_page
from service.http.metrics import Metrics
from service.http.openapi import complete
from service.http.routes import best, health, jobs, stored
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
    app.state.service = ServiceState(
        settings=settings,
        store=store,
        metrics=Metrics(),
        streams=Gate(settings.limits.event_streams),
        stopping=threading.Event(),
    )
    problems.install(app)
    middleware.install(app, app.state.service)
    for module in (jobs, best, stored, health):
        app.include_router(module.router)

    describe = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            complete(describe())  # which FastAPI keeps
        return describe()

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()), headers={"X-Content-Type-Options": "nosniff"})

    return app
