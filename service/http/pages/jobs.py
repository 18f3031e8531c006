"""`/` and `/jobs/{id}`: the list of jobs, and one job."""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import urlencode

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse

from tilewright.db.values.job_states import JobState
from tilewright.db.values.jobs import JobEvent, StoredJob
from tilewright.schedules.errors import TilewrightError
from tilewright.service.access.keys import Principal
from tilewright.service.errors import NotFound
from tilewright.service.http.deps import Caller, State, checked_job_id
from tilewright.service.http.pages import job_form
from tilewright.service.http.pages.compare_jobs import others
from tilewright.service.http.pages.forms import Fields, Form
from tilewright.service.http.pages.open_jobs import active_jobs, job_counts
from tilewright.service.http.pages.render import page, wants_part
from tilewright.service.http.pages.roofline import Roofline, level_of, roofline
from tilewright.service.http.pages.trials import in_words
from tilewright.service.http.pages.views import ACTIVE, STATES, JobView, job_row, job_view
from tilewright.service.http.routes import jobs as api
from tilewright.service.http.routes.jobs import sharing_document
from tilewright.service.http.state import ServiceState
from tilewright.service.jobs.queue import position_of
from tilewright.service.problems import ProblemDetails, problem_of

PAGE = 25
EVENTS = 1000
FASTEST = 10
MOST_DETAIL = 300

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=200)]
Token = Annotated[str | None, Query(max_length=200)]


def _listed(
    state: State, caller: Caller, q: Text = "", only: Text = "", after: Token = None
) -> dict[str, Any]:
    """Return the jobs of one state, or all jobs. If all jobs are listed, the first page begins with
    the unfinished ones."""
    owner = caller.visible_owner
    chosen = JobState(only) if only in STATES else None
    states = (chosen,) if chosen else tuple(name for name in JobState if name not in ACTIVE)
    found = state.store.catalogue.jobs(q, states, after, PAGE, owner)
    counts = job_counts(state, owner)
    first = chosen is None and not after
    active = active_jobs(state, owner, counts, PAGE, q)[:PAGE] if first else []
    query = {"q": q, "only": only if chosen else ""}
    parameters = {name: value for name, value in query.items() if value}
    return {
        "active": active,
        "more_active": sum(counts[name] for name in ACTIVE) - len(active) if first else 0,
        "rows": [job_row(line) for line in found.items],
        "counts": counts,
        "states": STATES,
        "q": q,
        "only": query["only"],
        "after": after or "",
        "first_query": urlencode(parameters),
        "next_query": urlencode({**parameters, "after": found.next_token})
        if found.next_token
        else "",
        "list_query": urlencode({**parameters, **({"after": after} if after else {})}),
        "text_query": urlencode({"q": q}) if q else "",
    }


Listed = Annotated[dict[str, Any], Depends(_listed)]


@router.api_route("/", methods=["GET", "HEAD"])
def jobs(request: Request, listed: Listed) -> HTMLResponse:
    """Running and finished jobs, newest first."""
    return page(request, "jobs.html", **listed)


@router.get("/jobs/list")
def job_list(request: Request, listed: Listed) -> HTMLResponse:
    """The table alone. `/` requests it every two seconds, and while a search text is entered."""
    return page(request, "_job_list.html", **listed)


@router.api_route("/jobs/new", methods=["GET", "HEAD"])
def new_job(request: Request, state: State) -> HTMLResponse:
    """The form for a new job, filled in from the query."""
    fields = {name: text for name in job_form.FIELDS if (text := request.query_params.get(name))}
    return _form(request, state, fields)


@router.post("/jobs")
async def submit(request: Request, state: State, caller: Caller, fields: Form) -> Response:
    """Submit a job. If it is refused, render the form again, with the problem."""
    try:
        document = await run_sync(_document, state, fields)
        job = await _submit(state, caller, document)
    except TilewrightError as error:
        problem = problem_of(error)
        if problem.status >= 500:
            raise
        return await run_sync(_form, request, state, fields, problem)
    return RedirectResponse(f"/jobs/{job['id']}", status_code=303)


async def _submit(
    state: ServiceState, caller: Principal, document: dict[str, Any], *, validate_only: bool = False
) -> dict[str, Any]:
    """Return the job of `POST /v1/jobs` with this body, after the same checks."""
    body = json.dumps(document).encode()
    return await api.submit(state, caller, body, Response(), validate_only)


def _document(state: ServiceState, fields: Fields) -> dict[str, Any]:
    def stored(key: str) -> dict[str, Any] | None:
        entry = state.store.workload(key)
        return None if entry is None else entry.document

    return job_form.job_document(fields, stored)


def _form(
    request: Request, state: ServiceState, fields: Fields, problem: ProblemDetails | None = None
) -> HTMLResponse:
    view = job_form.form_view(state.settings, fields, problem)
    status = problem.status if problem else 200
    return page(request, "job_new.html", status=status, form=view)


@router.post("/jobs/check")
async def check(request: Request, state: State, caller: Caller, fields: Form) -> HTMLResponse:
    """Validate the form; no job is created."""
    try:
        document = await run_sync(_document, state, fields)
        job = await _submit(state, caller, document, validate_only=True)
    except TilewrightError as error:
        return page(request, "_checked.html", job=None, problem=problem_of(error))
    return page(request, "_checked.html", job=job, problem=None)


@router.api_route("/jobs/{job_id}", methods=["GET", "HEAD"])
def job_page(request: Request, state: State, caller: Caller, job_id: str) -> HTMLResponse:
    """One job: its progress, its result, every trial."""
    job = _job(state, job_id)
    again = "" if "many" in job.request else job_form.again(job)
    return page(
        request,
        "job.html",
        again=again,
        others=others(state, caller, job_view(job)),
        oob=False,
        **_shown(state, caller, job),
        **_result(state, job),
    )


@router.get("/jobs/{job_id}/facts")
def facts(request: Request, state: State, caller: Caller, job_id: str) -> HTMLResponse:
    """The part of a job's page that changes. When the job is done, the page is made to request the
    result."""
    job = _job(state, job_id)
    headers = {"HX-Trigger": "job-done"} if job.done else {}
    return page(
        request, "_job_facts.html", headers=headers, **_shown(state, caller, job, counts=False)
    )


@router.get("/jobs/{job_id}/result")
def result(request: Request, state: State, caller: Caller, job_id: str) -> Response:
    """The result on a job's page."""
    if not wants_part(request):
        return RedirectResponse(f"/jobs/{job_id}", status_code=303)
    job = _job(state, job_id)
    shown = _shown(state, caller, job)
    return page(request, "_job_result.html", oob=True, **shown, **_result(state, job))


@router.get("/jobs/{job_id}/trials.json")
def trials(
    state: State,
    job_id: str,
    after: Annotated[int, Query(ge=0, lt=2**62)] = 0,
) -> JSONResponse:
    """The job's trials after event `after`, for its charts, and the next `after`."""
    job = _job(state, job_id)
    events = state.store.events_after(job_id, after, EVENTS)
    rows = [_trial(event, job) for event in events if event.kind == "trial"]
    return JSONResponse(
        {
            "after": events[-1].id if events else after,
            "more": len(events) == EVENTS,
            "done": job.done,
            "trials": rows,
        },
        headers={"Cache-Control": "no-store"},
    )


@router.post("/jobs/{job_id}/cancel")
async def cancel(state: State, caller: Caller, job_id: str, fields: Form) -> Response:
    """Stop the job, or withdraw from it if it has other owners; its results are kept."""
    await api.cancel(state, caller, checked_job_id(job_id))
    return RedirectResponse(f"/jobs/{job_id}", status_code=303)


def _job(state: ServiceState, job_id: str) -> StoredJob:
    job = state.store.get_job(checked_job_id(job_id))
    if job is None:
        raise NotFound(f"job {job_id}: no such job", advice="The list of jobs is at `/`.")
    return job


def _shown(
    state: ServiceState, caller: Principal, job: StoredJob, *, counts: bool = True
) -> dict[str, Any]:
    view = job_view(job)
    by_status: dict[str, int] = {}
    if counts:
        by_status = state.store.catalogue.trial_counts(job.id)
    waits = position_of(state.store.job_queue(), job.id) if view.row.state == "QUEUED" else None
    return {
        "job": view,
        "waits": waits[1] if waits else "",
        "sharing": sharing_document(state.store.job_sharing([job.id])[job.id], caller),
        "ends_for_all": caller.visible_owner is None,
        "by_status": _ordered(by_status),
    }


def _ordered(by_status: dict[str, int]) -> list[tuple[str, int]]:
    """Return the statuses with their counts: ok first, then the most frequent."""
    return sorted(by_status.items(), key=lambda item: (item[0] != "ok", -item[1], item[0]))


def _result(state: ServiceState, job: StoredJob) -> dict[str, Any]:
    view = job_view(job)
    return {
        # The trials of different workloads cannot be compared.
        "fastest": [] if view.is_many else state.store.catalogue.fastest_trials(job.id, FASTEST),
        "roofline": _roofline(view),
    }


def _roofline(view: JobView) -> Roofline | None:
    """Return the roofline of a finished job, with the rates used for its bound."""
    if view.result is None or view.best is None:
        return None
    target = view.result["target"]
    kernels = [("best", "best", float(view.best["run_secs"]))]
    if view.default_secs:
        kernels.append(("default", "default", view.default_secs))
    return roofline(
        float(target.get("peak_gflops") or 0),
        float(target.get("bandwidth_gbs") or 0),
        view.row.flops,
        view.min_bytes,
        kernels,
        level_of(str(view.best["bound"]), view.bound_secs or 0.0, view.min_bytes),
    )


def _trial(event: JobEvent, job: StoredJob) -> dict[str, Any]:
    """Return a trial for the charts. `at` is seconds since the job began. The run's own time is not
    used, because it restarts when another worker resumes the job."""
    data = event.data
    begun = job.started_at or job.created_at
    return {
        "trial": data["trial"],
        "at": round(max((event.created_at - begun).total_seconds(), 0.0), 3),
        "status": data["result"]["status"],
        "why": str(data["result"].get("detail") or "")[:MOST_DETAIL],
        "secs": data["result"]["run_secs_estimate"],
        "best": data["best_run_secs"],
        "fraction": data["fraction_of_bound"],
        "predicted": data.get("predicted_secs"),
        "record": data.get("record_key"),
        "sketch": data.get("sketch", ""),
        "knobs": in_words(data.get("knobs", {})),
    }
