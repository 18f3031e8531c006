"""Jobs: submit, read, wait, cancel, follow, list trials."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import StreamingResponse

from tilewright.db.errors import BadPageToken
from tilewright.db.values.job_states import JobState
from tilewright.db.values.jobs import JobQuota, Sharing, StoredJob
from tilewright.schedules.canonical import canonical_bytes
from tilewright.service.access.keys import Principal, key_of_owner
from tilewright.service.errors import InvalidField, NotFound, TooBusy
from tilewright.service.http.deps import (
    Caller,
    JobBody,
    PageSize,
    PageToken,
    State,
    Wait,
    Waited,
    checked_job_id,
    parse_body,
)
from tilewright.service.http.events import EventStream, job_events
from tilewright.service.http.schemas import (
    JobOut,
    JobPage,
    StateName,
    TrialPage,
    problem_responses,
    schema_ref,
)
from tilewright.service.http.state import ServiceState
from tilewright.service.jobs.document import (
    job_document,
    listed_tasks,
    task_names,
    trial_document,
)
from tilewright.service.jobs.queue import open_jobs, position_of
from tilewright.service.jobs.request import JobRequest, read_job
from tilewright.service.resolve.requests import JobIn

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

JOB_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": schema_ref(JobIn)}},
    }
}

EVENT = {
    "type": "object",
    "description": "One event of the stream; `data` is JSON.",
    "properties": {
        "id": {"type": "string"},
        "event": {"enum": ["state", "trial", "task", "activity", "rejected", "done"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}

TaskName = Annotated[
    str | None,
    Query(max_length=300, description="The name of a task of a job of many workloads."),
]

IdempotencyKey = Annotated[
    str | None,
    Header(description="A request with the same key and body returns the same job."),
]


@router.post(
    "",
    status_code=202,
    response_model=JobOut,
    operation_id="submitJob",
    openapi_extra=JOB_BODY,
    responses={
        200: {"model": JobOut, "description": "The request is valid (validate_only)."},
        **problem_responses(400, 413, 415, 422, 429, 503, 507),
    },
)
async def submit(
    state: State,
    caller: Caller,
    body: JobBody,
    response: Response,
    validate_only: Annotated[
        bool,
        Query(description="Check the request and return the job; create no job."),
    ] = False,
    idempotency_key: IdempotencyKey = None,
) -> dict[str, Any]:
    """Submit a tuning job. If an equal job is open, it is returned."""
    _check_idempotency_key(idempotency_key)
    document, request = await run_sync(_read, state, body)
    if validate_only:
        response.status_code = 200
        return preview(request)
    await run_sync(_check_open_jobs, state)
    job, _ = await state.write(
        state.store.create_job,
        request.to_json(),
        body_hash=hashlib.sha256(canonical_bytes(document)).hexdigest(),
        flight_key=request.flight_key,
        idempotency_key=key_of_owner(caller, idempotency_key),
        owner=caller.owner,
        quota=JobQuota(state.limits.owner_open_jobs, state.limits.owner_open_trials),
        priority=document.get("priority", 0),
    )
    response.headers["Location"] = f"/v1/jobs/{job.id}"
    response.headers["Retry-After"] = "1"
    return await run_sync(_shown, state, caller, job)


@router.get(
    "", response_model=JobPage, operation_id="listJobs", responses=problem_responses(400, 422)
)
def list_jobs(
    state: State,
    caller: Caller,
    size: PageSize,
    page_token: PageToken = None,
    only: Annotated[StateName | None, Query(alias="state")] = None,
) -> dict[str, Any]:
    """Jobs, newest first."""
    page = state.store.list_jobs(
        page_token, size, JobState(only) if only else None, caller.visible_owner
    )
    return {
        "jobs": _listed(state, caller, page.items),
        "next_page_token": page.next_token,
    }


@router.get(
    "/{job_id}",
    response_model=JobOut,
    operation_id="readJob",
    responses=problem_responses(404, 422),
)
async def read(
    state: State, caller: Caller, waited: Waited, job_id: str, wait: Wait
) -> dict[str, Any]:
    """One job. With `?wait=30s`, respond when the job is finished, or after that time."""
    checked_job_id(job_id)
    if not wait:
        return await run_sync(_job, state, caller, job_id)
    deadline = anyio.current_time() + wait
    async with state.feeds.of(job_id) as feed:
        while True:
            version = feed.version
            is_over = await feed.is_over()
            left = deadline - anyio.current_time()
            if is_over or left <= 0 or state.stopping.is_set():
                return await run_sync(_job, state, caller, job_id)
            with waited.on_purpose():
                await feed.changed_since(version, left)


@router.post(
    "/{job_id}:cancel",
    response_model=JobOut,
    operation_id="cancelJob",
    responses=problem_responses(404, 409, 503),
)
async def cancel(state: State, caller: Caller, job_id: str) -> dict[str, Any]:
    """Stop the job; its results are kept. Cancelling again changes nothing.

    If a job has several owners, the caller only withdraws from it (`sharing`). The job stops when
    its last owner withdraws, or when a key with the scope `admin` cancels it.
    """
    job = await state.write(
        state.store.request_cancel, checked_job_id(job_id), caller.visible_owner
    )
    return await run_sync(_shown, state, caller, job)


@router.get(
    "/{job_id}/events",
    operation_id="followJob",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Events `state`, `trial` and `activity`; `rejected` for each candidate "
            "that failed the full check; `task` when a task of many begins or ends; and at the "
            "end `done`. Each event except `done` has an "
            "id, for `Last-Event-ID`.",
            "content": {"text/event-stream": {"schema": EVENT}},
        },
        **problem_responses(404, 422, 429),
    },
)
async def events(
    request: Request,
    state: State,
    job_id: str,
    last_event_id: Annotated[str | None, Header(description="Continue after this event.")] = None,
    task: TaskName = None,
) -> StreamingResponse:
    """Server-sent events of the job: all stored events, then new ones until the job is finished.

    Of a job of many workloads, `task` selects one: events of other tasks are left out.
    """
    checked_job_id(job_id)
    after = _event_id(last_event_id)
    if task is not None or not state.feeds.knows(job_id):
        job = await run_sync(stored_job, state, job_id)
        if task is not None:
            key_of_task(job, task)
    still_admitted = request.state.still_admitted
    return EventStream(state.streams, job_events(state, job_id, after, still_admitted, task))


@router.get(
    "/{job_id}/trials",
    response_model=TrialPage,
    operation_id="listTrials",
    responses=problem_responses(400, 404, 422),
)
def trials(
    state: State, job_id: str, size: PageSize, page_token: PageToken = None, task: TaskName = None
) -> dict[str, Any]:
    """Every trial of the job with its status and samples, in order. Of a job of many workloads,
    `task` selects the trials of one."""
    job = stored_job(state, checked_job_id(job_id))
    names = task_names(job.request)
    workload_key = "" if task is None else key_of_task(job, task)
    token = page_token or "0"
    if not (token.isascii() and token.isdigit() and len(token) <= 9):
        raise BadPageToken(
            f"page token {token[:60]!r}: must be the next_page_token of the previous page"
        )
    found = state.store.job_trials(job_id, int(token), size, workload_key)
    works = {(record.workload_key, record.target_key) for _, record in found}
    checks = {work: state.store.full_checks(*work) for work in works}
    more = len(found) == size
    return {
        "trials": [
            trial_document(trial, record, checks[record.workload_key, record.target_key], names)
            for trial, record in found
        ],
        "next_page_token": str(found[-1][0]) if more else None,
    }


def preview(request: JobRequest) -> dict[str, Any]:
    """Return the document of the job that `request` would create, without an id."""
    form = request.to_json()
    return {
        "id": None,
        "state": "QUEUED",
        "done": False,
        "workload": form["workload_summary"],
        "target": form["target_summary"],
        "request": {
            name: form[name] for name in ("threads", "budget", "strategy", "seed", "measurer")
        },
        "progress": {"trials": form["budget"]["trials"], "trials_done": 0},
        "queue": None,
        "best": None,
        "result": None,
        "error": None,
        "created_at": None,
        "started_at": None,
        "finished_at": None,
    }


def _read(state: ServiceState, body: bytes) -> tuple[Any, JobRequest]:
    document = parse_body(body, state.limits.json_nodes)
    return document, read_job(document, state.settings)


def stored_job(state: ServiceState, job_id: str) -> StoredJob:
    """Return the job. Raise NotFound if it does not exist."""
    job = state.store.get_job(job_id)
    if job is None:
        raise NotFound(f"job {job_id}: no such job")
    return job


def key_of_task(job: StoredJob, name: str) -> str:
    """Return the workload key of a task. Raise NotFound if the job has no such task."""
    for task in listed_tasks(job.request):
        if task["name"] == name:
            return str(task["workload_key"])
    raise NotFound(
        f"job {job.id}: no task {name[:60]!r}",
        advice="`request.tasks` of a job of many workloads has the names of its tasks.",
    )


def _job(state: ServiceState, caller: Principal, job_id: str) -> dict[str, Any]:
    return _shown(state, caller, stored_job(state, job_id))


def _shown(state: ServiceState, caller: Principal, job: StoredJob) -> dict[str, Any]:
    """Return the job's document, with the queue position if it waits."""
    waits = job.state is JobState.QUEUED
    found = position_of(state.store.job_queue(), job.id) if waits else None
    sharing = state.store.job_sharing([job.id])[job.id]
    return job_document(job, found, sharing_document(sharing, caller))


def _listed(
    state: ServiceState, caller: Principal, jobs: Sequence[StoredJob]
) -> list[dict[str, Any]]:
    sharing = state.store.job_sharing([job.id for job in jobs])
    return [job_document(job, sharing=sharing_document(sharing[job.id], caller)) for job in jobs]


def _check_open_jobs(state: ServiceState) -> None:
    state.room.check()
    if sum(open_jobs(state.store).values()) >= state.limits.open_jobs:
        raise TooBusy(f"{state.limits.open_jobs} jobs are open already", retry_after_secs=10)


def _check_idempotency_key(key: str | None) -> None:
    if key is not None and not (1 <= len(key) <= 255 and key.isascii() and key.isprintable()):
        raise InvalidField(
            "Idempotency-Key: must be 1 to 255 printable ASCII characters",
            code="bad_idempotency_key",
        )


def _event_id(text: str | None) -> int:
    if text is None or text == "":
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise InvalidField(
            f"Last-Event-ID {text[:40]!r}: must be the id of an event of this stream",
            code="bad_event_id",
        )
    return int(text)


def sharing_document(found: Sharing, caller: Principal) -> dict[str, Any]:
    """Return the number of `owners` of a job, and whether the caller has `withdrawn`. Callers who
    may see all jobs also get the `names` of the owners."""
    return {
        "owners": len(found.asking),
        "withdrawn": caller.owner in found.withdrawn,
        "names": list(found.asking) if caller.visible_owner is None else None,
    }
