"""The best known answer, for one pair of keys or for many workloads."""

from __future__ import annotations

import logging
import time
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import JSONResponse

from tilewright.db.errors import StoreError
from tilewright.schedules.target import Target
from tilewright.service.access.keys import KeyScope, Principal
from tilewright.service.answers import lookup
from tilewright.service.answers.answer_cache import CacheMiss, FoundAnswer, Outcome, Question
from tilewright.service.answers.lookup import Lookup
from tilewright.service.answers.prepare_queue import (
    PrepareRequest,
    is_settled,
    is_to_be_tried_again,
    is_wanted,
    stored_workload,
)
from tilewright.service.errors import NoAnswer, NotPrepared, TooBusy
from tilewright.service.grade import Grade
from tilewright.service.http.caching import etag_matches
from tilewright.service.http.deps import Caller, LookupBody, State, Waited, checked_key, parse_body
from tilewright.service.http.schemas import (
    AnswerOut,
    LookupOut,
    PendingOut,
    problem_responses,
    schema_ref,
)
from tilewright.service.http.state import ServiceState
from tilewright.service.jobs.tickets import Tickets, no_tickets, tickets_for
from tilewright.service.resolve.requests import GradeName, LookupIn, read_model

log = logging.getLogger("tilewright.preparing")

router = APIRouter(prefix="/v1", tags=["best"])

LOOKUP_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": schema_ref(LookupIn)}},
    }
}


@router.get(
    "/best/{workload_key}/{target_key}",
    response_model=AnswerOut,
    operation_id="readBest",
    responses={202: {"model": PendingOut,
                     "description": "An answer is being prepared; try again after `Retry-After`."},
               304: {"description": "The client has the answer (If-None-Match)."},
               **problem_responses(404, 422, 429, 507)},
)  # fmt: skip
async def best(
    state: State,
    caller: Caller,
    waited: Waited,
    workload_key: str,
    target_key: str,
    min_grade: Annotated[GradeName, Query(description="The lowest acceptable grade.")] = (
        Grade.EXACT
    ),
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The best known answer for a workload on a target, with its grade.

    Never measures. An answer for an untuned workload is prepared in the background: the response
    waits for it up to `default_secs` (see `/limits`), then reports that it is pending.
    """
    question = Question(
        lookup.bare_key(checked_key(workload_key, "workload")),
        lookup.bare_key(checked_key(target_key, "target")),
        Grade(min_grade),
    )
    outcome = state.answers.cache.cached(question)
    if outcome is None:
        outcome = await run_sync(_find, state, question, limiter=state.finds)
    if is_wanted(outcome, question.minimum):
        outcome = await run_sync(_demanded, state, caller, question, outcome, limiter=state.finds)
    if not is_settled(outcome):
        name = state.answers.prepare_queue.name(question.workload_key, question.target_key)
        with waited.on_purpose():
            await state.watch.wait([name], state.limits.default_secs)
        outcome = await run_sync(_find, state, question, limiter=state.finds)
    if isinstance(outcome, CacheMiss):
        state.metrics.answer("none")
        if outcome.preparing:
            return await run_sync(_pending, state, outcome)
        raise _no_answer(question, outcome)
    state.metrics.answer(outcome.grade.value)
    return _answer(outcome, if_none_match)


def _tickets(state: ServiceState, caller: Principal, target: Target) -> Tickets:
    """Return a function that creates ticket jobs, or none if the caller may not submit jobs."""
    if not caller.may(KeyScope.SUBMIT):
        return no_tickets
    return tickets_for(target, state.limits.trials_default)


def _find(state: ServiceState, question: Question) -> Outcome:
    return state.answers.cache.find([question])[0]


def _demanded(
    state: ServiceState, caller: Principal, question: Question, outcome: Outcome
) -> Outcome:
    """Request a preparation, and return the current outcome. Raise TooBusy if it is refused."""
    document = state.store.target(question.target_key)
    if document is None or (isinstance(outcome, CacheMiss) and not outcome.workload_known):
        return outcome
    key, target = question.workload_key, Target.from_json(document)
    again = PrepareRequest(
        key,
        lambda: stored_workload(state.store, key),
        again=outcome.untried or is_to_be_tried_again(outcome),
    )
    tickets = _tickets(state, caller, target)
    refused = state.answers.prepare_queue.enqueue([again], target, tickets, owner=caller.owner)
    if refused and isinstance(outcome, CacheMiss):
        state.room.check()
        raise _too_busy(state, caller)
    return _find(state, question)


def _answer(found: FoundAnswer, if_none_match: str | None) -> Response:
    headers = {"ETag": found.etag, "Cache-Control": "no-cache", "Vary": "Accept"}
    if found.record_key:
        headers["Content-Location"] = f"/v1/records/{found.record_key}"
    if found.preparing:
        headers["Retry-After"] = "1"
    if etag_matches(if_none_match, found.etag):
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type="application/json", headers=headers)


def _pending(state: ServiceState, lacking: CacheMiss) -> Response:
    secs = state.answers.prepare_queue.retry_after_secs()
    document = PendingOut(
        pending=True, detail=lookup.PENDING, ticket=lacking.ticket, retry_after_secs=secs
    )
    headers = {"Retry-After": str(secs), "Cache-Control": "no-store"}
    return JSONResponse(document.model_dump(), 202, headers)


def _too_busy(state: ServiceState, caller: Principal) -> TooBusy:
    limits = state.limits
    own = f", or {limits.owner_preparations} of {caller.owner}" if caller.owner else ""
    return TooBusy(
        f"{limits.preparations} answers are being prepared already{own}",
        retry_after_secs=state.answers.prepare_queue.retry_after_secs(),
    )


def _no_answer(question: Question, lacking: CacheMiss) -> NoAnswer | NotPrepared:
    if not lacking.workload_known:
        return NoAnswer(
            f"workload {question.workload_key}: not known here",
            advice="Tune it, or send its document to POST /v1/best:lookup.",
        )
    if not lacking.target_known:
        return NoAnswer(
            f"target {question.target_key}: not known here",
            advice="Tune for it, or send its document to POST /v1/best:lookup.",
        )
    if lacking.problem is not None and question.minimum is Grade.DEFAULT:
        return lookup.not_prepared(lacking.problem)
    return lookup.no_answer(question.minimum, lacking)


@router.post(
    "/best:lookup",
    response_model=LookupOut,
    operation_id="lookUpBest",
    openapi_extra=LOOKUP_BODY,
    responses=problem_responses(400, 413, 415, 422),
)
async def look_up(state: State, caller: Caller, waited: Waited, body: LookupBody) -> Response:
    """Answers for up to 1,000 workloads on one target: an answer or a problem for each.

    If the request has no keys, and `min_grade` is "default", every valid workload gets an answer.
    An answer that is not prepared within `lookup_secs` (see `/limits`) is `pending`; send the
    request again.
    """
    until = time.monotonic() + state.limits.lookup_secs
    request, outcomes, refused = await run_sync(
        _first_look, state, caller, body, until, limiter=state.lookups
    )
    open_preparations = [
        state.answers.prepare_queue.name(key, request.target.key)
        for key, outcome in outcomes.items()
        if not is_settled(outcome)
    ]
    if open_preparations:
        with waited.on_purpose():
            await state.watch.wait(open_preparations, until - time.monotonic())
    content, grades, retry_after = await run_sync(
        _current_answer, state, request, outcomes, refused, limiter=state.lookups
    )
    for grade in grades:
        state.metrics.answer(grade)
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return Response(content, media_type="application/json", headers=headers)


def _first_look(
    state: ServiceState, caller: Principal, body: bytes, until: float
) -> tuple[Lookup, dict[str, Outcome], set[str]]:
    """Return the parsed lookup, the known outcomes, and the keys whose preparation was refused."""
    document: Any = parse_body(body, state.limits.lookup_json_nodes)
    model = read_model(LookupIn, document)
    request = lookup.read_lookup(state.store, state.answers.parsed_workloads, model)
    outcomes = lookup.find_all(state.answers.cache, request)
    wanted = lookup.prepare_requests(state.store, state.answers.parsed_workloads, request, outcomes)
    if not wanted:
        return request, outcomes, set()
    tickets = _tickets(state, caller, request.target)
    try:
        refused = state.answers.prepare_queue.enqueue(
            wanted, request.target, tickets, until, caller.owner
        )
    except StoreError as error:
        if not error.transient:
            raise
        # If the database is read-only, stored answers are still returned.
        log.warning("nothing can be prepared: %s", error)
        state.metrics.store_error()
        refused = {one.workload_key for one in wanted}
    return request, lookup.find_all(state.answers.cache, request), refused


def _current_answer(
    state: ServiceState, request: Lookup, outcomes: dict[str, Outcome], refused: set[str]
) -> tuple[bytes, list[str], int]:
    """Return the body of the response, the grade of each item, and the seconds until a retry (0 if
    all items are final)."""
    if not all(map(is_settled, outcomes.values())):
        outcomes = lookup.find_all(state.answers.cache, request)
    content, grades = lookup.lookup_body(request, outcomes, refused)
    more = bool(refused) or not all(map(is_settled, outcomes.values()))
    return content, grades, state.answers.prepare_queue.retry_after_secs() if more else 0
