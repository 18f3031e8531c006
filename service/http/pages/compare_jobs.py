"""`/jobs/compare`: two jobs in one chart and in one table."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from tilewright.db.values.whole import JobLine
from tilewright.service.access.keys import Principal
from tilewright.service.errors import InvalidField, NotFound
from tilewright.service.http.deps import Caller, State, checked_job_id
from tilewright.service.http.pages.render import page
from tilewright.service.http.pages.views import JobView, Pair, job_view
from tilewright.service.http.routes.jobs import stored_job
from tilewright.service.http.state import ServiceState
from tilewright.service.units import clock, duration, speed

router = APIRouter(include_in_schema=False)

MOST_OTHERS = 20


@router.get("/jobs/compare", response_class=HTMLResponse)
def compare(
    request: Request,
    state: State,
    caller: Caller,
    a: Annotated[str, Query(max_length=40)] = "",
    b: Annotated[str, Query(max_length=40)] = "",
) -> Response:
    """Render the jobs `?a=JOB&b=JOB`. `route_rules` checks owners only of jobs in paths, so this
    function hides the jobs of other owners."""
    if not (a and b) or a == b:
        raise InvalidField(
            "compare: two jobs are needed",
            code="two_needed",
            advice="Choose another on the page of a job, or open /jobs/compare?a=JOB&b=JOB.",
        )
    left, right = (job_view(stored_job(state, _seen(state, caller, one))) for one in (a, b))
    return page(
        request,
        "compare_jobs.html",
        left=left,
        right=right,
        same=left.row.workload_key == right.row.workload_key,
        pairs=pairs(left, right),
    )


@router.get("/jobs/{job_id}/compare")
def chosen(job_id: str, b: Annotated[str, Query(max_length=40)] = "") -> RedirectResponse:
    """Redirect to the comparison, from the form on a job's page."""
    checked = checked_job_id(b) if b else ""
    return RedirectResponse(f"/jobs/compare?a={checked_job_id(job_id)}&b={checked}", 303)


def others(state: ServiceState, caller: Principal, view: JobView) -> list[JobLine]:
    """Return other jobs of the same workload, newest first."""
    key = view.row.workload_key
    found = state.store.catalogue.jobs(key, (), None, MOST_OTHERS + 1, caller.visible_owner)
    return [
        line for line in found.items if line.id != view.row.id and line.workload.get("key") == key
    ][:MOST_OTHERS]


def _seen(state: ServiceState, caller: Principal, job_id: str) -> str:
    """Return `job_id` if the caller may see the job. Raise NotFound if not."""
    checked_job_id(job_id)
    owner = caller.visible_owner
    if owner is not None and not state.store.job_is_seen_by(job_id, owner):
        raise NotFound(f"job {job_id}: no such job")
    return job_id


def pairs(left: JobView, right: JobView) -> tuple[Pair, ...]:
    return tuple(
        Pair(name, one, two)
        for (name, one), (_, two) in zip(_facts(left), _facts(right), strict=True)
    )


def _facts(job: JobView) -> list[tuple[str, str]]:
    row, wall = job.row, job.result.get("wall_secs") if job.result else None
    cost: dict[str, Any] = (job.result or {}).get("cost_model") or {}
    rank = cost.get("rank_correlation")
    best = row.best_run_secs
    return [
        ("Workload", row.name),
        ("State", row.state.lower()),
        ("Machine", f"{row.cpu}, {row.threads} thread{'s' if row.threads != 1 else ''}"),
        ("Measured by", job.measurer),
        ("Search", f"{job.strategy}, seed {job.seed}"),
        ("Trials", f"{row.trials_done} of {row.trials}, {job.failed} failed, {job.reused} reused"),
        ("Best", f"{duration(best)}, {speed(row.flops, best)}" if best else "none"),
        ("Of the bound", f"{row.fraction_of_bound:.1%}" if row.fraction_of_bound else "not known"),
        ("Default schedule", duration(job.default_secs) if job.default_secs else "not timed"),
        ("Time of the search", duration(wall) if wall else "not ended"),
        ("From start to end", clock(row.took_secs) if row.took_secs is not None else "not ended"),
        ("Cost model", f"rank correlation {rank:.2f}" if rank is not None else "not known"),
        ("Stopped", str((job.result or {}).get("stopped_because") or "")),
    ]
