"""Operational routes: liveness, readiness, metrics, limits."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from functools import cache, partial
from typing import Any, TypeVar

import anyio
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Request, Response

from tilewright.schedules.errors import TilewrightError
from tilewright.service import timeouts
from tilewright.service.errors import Unavailable
from tilewright.service.http.deps import state_of
from tilewright.service.http.schemas import problem_responses
from tilewright.service.http.state import ServiceState
from tilewright.service.jobs.heartbeat import Role
from tilewright.service.problems import problem_of

router = APIRouter(tags=["operation"])

LEAST_FREE_BYTES = 16 << 20

T = TypeVar("T")


# Health checks use separate threads, so that they never wait behind requests for the database.


@router.get("/healthz", operation_id="health")
async def healthz() -> dict[str, Any]:
    """The process responds, in any state of the database."""
    return {"status": "ok", "version": _version(), "sqlite": sqlite3.sqlite_version}


@router.get("/readyz", operation_id="ready", responses=problem_responses(503))
async def readyz(request: Request) -> dict[str, Any]:
    """The database responds and can be written, and a worker runs or stands by (`role`). Otherwise
    the status is 503, with the reason."""
    state = state_of(request)
    code, records, reasons = "not_ready", None, [state.identity.problem(), _quota_problem(state)]
    health = state.worker()
    if health is not None and not health.ready:
        reasons.append(health.reason)
    try:
        records = (await _soon(state.store.counts)).records
    except TimeoutError:
        reasons.append(f"the database did not answer within {timeouts.HEALTH_CHECK_SECS:g} s")
    except TilewrightError as error:
        reasons.append(str(error))
        code = problem_of(error).code
    problems = [reason for reason in reasons if reason]
    if problems:
        raise Unavailable("; ".join(problems), code=code)
    role = Role.REPLICA if health is None else health.role
    answer: dict[str, Any] = {"status": "ok", "role": role, "records": records}
    if health is not None:
        answer["worker"] = {"pid": health.pid, "deaths": health.deaths}
    return answer


@router.get(
    "/metrics",
    operation_id="metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Metrics in Prometheus's text format. Without the database, only those of the process."""
    state = state_of(request)
    try:
        limit_bytes = state.room.limit_bytes
        with_store = await _soon(lambda: state.metrics.look_at(state.store, limit_bytes))
    except TimeoutError:
        state.metrics.store_error()
        with_store = False
    exposition = partial(state.metrics.exposition, version=_version(), with_store=with_store)
    return Response(
        await run_sync(exposition, state.worker(), limiter=_threads()),
        media_type="text/plain; version=0.0.4; charset=utf-8",
    )


@router.get("/limits", operation_id="limits")
async def limits(request: Request) -> dict[str, Any]:
    """Limits of this service in bytes, seconds and counts."""
    state = state_of(request)
    settings = state.settings
    return {
        **state.limits.to_json(),
        "workload_bytes": settings.workload_bytes,
        "workload_iterations": settings.workload_iterations,
    }


async def _soon(function: Callable[[], T]) -> T:
    """Return the result of `function`, called in a separate thread. Raise TimeoutError after
    `HEALTH_CHECK_SECS`; the thread is then abandoned."""
    with anyio.fail_after(timeouts.HEALTH_CHECK_SECS):
        return await run_sync(function, limiter=_threads(), abandon_on_cancel=True)


@cache
def _threads() -> CapacityLimiter:
    return CapacityLimiter(4)


def _quota_problem(state: ServiceState) -> str:
    path = state.store.path
    if path is None:
        return ""
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError:
        return ""
    if free >= LEAST_FREE_BYTES:
        return ""
    return f"only {free >> 20} MiB are free where the database is"


@cache
def _version() -> str:
    from importlib.metadata import version

    return version("tilewright")
