"""Every page of the dashboard, added to the application."""

from __future__ import annotations

from fastapi import FastAPI

from tilewright.service.http.pages import (
    api_docs,
    assets,
    comparing,
    fleet,
    jobs,
    login,
    records,
    trials,
    workloads,
)


def install(app: FastAPI) -> None:
    """Add every page to `app`."""
    for module in (assets, comparing, jobs, trials, records, workloads, fleet, api_docs, login):
        app.include_router(module.router)
