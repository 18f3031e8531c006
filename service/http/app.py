"""The API as an ASGI application."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from anyio.to_thread import run_sync
from fastapi import FastAPI

from tilewright.service.answers.answer_service import AnswerService, make_answer_service
from tilewright.service.file_identity import FileIdentity
from tilewright.service.http import error_handlers, middleware
from tilewright.service.http.feeds import Feeds
from tilewright.service.http.metrics import Metrics
from tilewright.service.http.openapi import complete
from tilewright.service.http.pages import (
    api_docs,
    assets,
    compare_jobs,
    login,
    records,
    trials,
    workloads,
)
from tilewright.service.http.pages import fleet as fleet_page
from tilewright.service.http.pages import jobs as job_pages
from tilewright.service.http.preparation_watch import PreparationWatch
from tilewright.service.http.request_log import RequestLog
from tilewright.service.http.routes import best, builds, fleet, health, jobs, publishing, stored
from tilewright.service.http.state import ConcurrencyLimit, ServiceState
from tilewright.service.jobs.supervisor import WorkerHealth
from tilewright.service.settings import Settings

if TYPE_CHECKING:
    from tilewright.db import Store

API_VERSION = "1"
PAGES = (
    assets,
    compare_jobs,
    job_pages,
    trials,
    records,
    workloads,
    fleet_page,
    api_docs,
    login,
)
"""Modules of the dashboard. Their routes are matched in this order."""


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Run helper processes while the application serves."""
    answers: AnswerService = app.state.service.answers
    await run_sync(answers.start)
    try:
        yield
    finally:
        await run_sync(answers.close)


def create_app(
    settings: Settings,
    store: Store,
    worker: Callable[[], WorkerHealth | None] = lambda: None,
) -> FastAPI:
    """Return the API on `store`, which the caller closes. Jobs run in the worker process; `worker`
    returns its health."""
    app = FastAPI(
        title="Tilewright",
        version=API_VERSION,
        summary="Tuned schedules for tensor expressions: look up the best, or tune for it.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=_lifespan,
    )
    answers, stopping = make_answer_service(store, settings), threading.Event()
    app.state.service = ServiceState(
        settings=settings,
        store=store,
        metrics=Metrics(),
        streams=ConcurrencyLimit(settings.limits.event_streams),
        stopping=stopping,
        feeds=Feeds(store, stopping.is_set),
        identity=FileIdentity(store.path),
        worker=worker,
        answers=answers,
        watch=PreparationWatch(store, answers.prepare_queue, stopping),
    )
    error_handlers.install(app)
    middleware.install(app, app.state.service)
    app.add_middleware(RequestLog)
    for module in (jobs, best, builds, stored, publishing, fleet, health):
        app.include_router(module.router)
    for page in PAGES:
        app.include_router(page.router)

    describe = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            complete(describe())  # FastAPI caches it
        return describe()

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way
    return app
