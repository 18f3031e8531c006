"""For operators: is it up, can it work, how is it doing, what does it accept."""

from __future__ import annotations

import sqlite3
from typing import Any

from fastapi import APIRouter, Response

from service.http.deps import State
from service.http.problems import problem_responses

router = APIRouter(tags=["operation"])


@router.get("/healthz", operation_id="health")
def healthz() -> dict[str, Any]:
    """The process answers."""
    from importlib.metadata import version

    return {"status": "ok", "version": version("tilewright"), "sqlite": sqlite3.sqlite_version}


@router.get("/readyz", operation_id="ready", responses=problem_responses(503))
def readyz(state: State) -> dict[str, Any]:
    """The database answers too."""
    return {"status": "ok", "records": state.store.counts().records}


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(state: State) -> Response:
    """Prometheus text format."""
    return Response(
        state.metrics.exposition(state.store), media_type="text/plain; version=0.0.4; charset=utf-8"
    )


@router.get("/limits", operation_id="limits")
def limits(state: State) -> dict[str, Any]:
    """Bytes, seconds and counts this service accepts."""
    settings = state.settings
    return {
        **state.limits.to_json(),
        "workload_bytes": settings.workload_bytes,
        "workload_iterations": settings.workload_iterations,
    }
