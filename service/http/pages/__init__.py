"""The dashboard: pages for people over the same answers the API gives.

`routes` know paths, `views` are frozen values that templates print, `inspect` shows what takes long
to make (loops, assembly, bounds) through a helper process. Templates escape everything; scripts and
styles are files of `static/`, so that the content policy forbids all others.
"""

from __future__ import annotations

from fastapi import FastAPI


def install(app: FastAPI) -> None:
    """Add every page to `app`."""
    from service.http.pages import assets, fleet, jobs, login, records, workloads

    for module in (assets, jobs, records, workloads, fleet, login):
        app.include_router(module.router)
