"""The best known answer: one by keys, or a thousand at once."""

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
from tilewright.service.answers.untuned import (
    PrepareRequest,
    is_settled,
    is_to_be_tried_again,
    is_wanted,
    stored_workload,
)
from tilewright.service.errors import NoAnswer, NotPrepared, TooBusy
from tilewright.service.grade import Grade
from tilewright.service.http.caching import names
from tilewright.service.http.deps import Asking, LookupBody, State, Waited, checked_key, parse_body
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

log = logging.getLogger("tilewright.untuned")

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
                     "description": "An answer is being prepared; `Retry-After` says when to ask."},
               304: {"description": "Still the answer that If-None-Match names."},
               **problem_responses(404, 422, 429, 507)},
)  # fmt: skip
async def best(
    state: State,
    asking: Asking,
    waited: Waited,
    workload_key: str,
    target_key: str,
    min_grade: Annotated[GradeName, Query(description="The least exact answer that will do.")] = (
        Grade.EXACT
    ),
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The best known answer for a workload on a target, with its grade.

    Never measures. What was not tuned is prepared in the background: the answer waits for it for
    a while (`/limits`: default_secs), then says how far it is.
    """
    question = Question(
        lookup.bare(checked_key(workload_key, "workload")),
        lookup.bare(checked_key(target_key, "target")),
        Grade(min_grade),
    )
    outcome = state.answers.book.at_once(question)
    if outcome is None:
        outcome = await run_sync(_find, state, question, limiter=state.finds)
    if is_wanted(outcome, question.minimum):
        outcome = await run_sync(_demanded, state, asking, question, outcome, limiter=state.finds)
    if not is_settled(outcome):
        name = state.answers.untuned.name(question.workload_key, question.target_key)
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


def _tickets(state: ServiceState, asking: Principal, target: Target) -> Tickets:
    """Jobs are made for those who may submit them; answers for everybody."""
    if not asking.may(KeyScope.SUBMIT):
        return no_tickets
    return tickets_for(target, state.limits.trials_default)


def _find(state: ServiceState, question: Question) -> Outcome:
    return state.answers.book.find([question])[0]


def _demanded(
    state: ServiceState, asking: Principal, question: Question, outcome: Outcome
) -> Outcome:
    """The outcome after word was left that something is wanted. TooBusy."""
    document = state.store.target(question.target_key)
    if document is None or (isinstance(outcome, CacheMiss) and not outcome.workload_known):
        return outcome
    key, target = question.workload_key, Target.from_json(document)
    again = PrepareRequest(
        key,
        lambda: stored_workload(state.store, key),
        again=outcome.untried or is_to_be_tried_again(outcome),
    )
    tickets = _tickets(state, asking, target)
    refused = state.answers.untuned.demand([again], target, tickets, owner=asking.owner)
    if refused and isinstance(outcome, CacheMiss):
        state.room.check()
        raise _too_busy(state, asking)
    return _find(state, question)


def _answer(found: FoundAnswer, if_none_match: str | None) -> Response:
    headers = {"ETag": found.etag, "Cache-Control": "no-cache", "Vary": "Accept"}
    if found.record_key:
        headers["Content-Location"] = f"/v1/records/{found.record_key}"
    if found.preparing:
        headers["Retry-After"] = "1"
    if names(if_none_match, found.etag):
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type="application/json", headers=headers)


def _pending(state: ServiceState, lacking: CacheMiss) -> Response:
    secs = state.answers.untuned.retry_after_secs()
    document = PendingOut(
        pending=True, detail=lookup.PENDING, ticket=lacking.ticket, retry_after_secs=secs
    )
    headers = {"Retry-After": str(secs), "Cache-Control": "no-store"}
    return JSONResponse(document.model_dump(), 202, headers)


def _too_busy(state: ServiceState, asking: Principal) -> TooBusy:
    limits = state.limits
    own = f", or {limits.owner_preparations} of {asking.owner}" if asking.owner else ""
    return TooBusy(
        f"{limits.preparations} answers are being prepared already{own}",
        retry_after_secs=state.answers.untuned.retry_after_secs(),
    )


def _no_answer(question: Question, lacking: CacheMiss) -> NoAnswer | NotPrepared:
    if not lacking.workload_known:
        return NoAnswer(
            f"workload {question.workload_key}: never seen here",
            advice="Tune it, or ask POST /v1/best:lookup with its document.",
        )
    if not lacking.target_known:
        return NoAnswer(
            f"target {question.target_key}: never seen here",
            advice="Tune for it, or ask POST /v1/best:lookup with its document.",
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
async def look_up(state: State, asking: Asking, waited: Waited, body: LookupBody) -> Response:
    """Answers for up to 1,000 workloads on one target: found or missing, one by one.

    With documents or spellings and `min_grade` "default" there is never a miss for a valid one:
    what is not prepared within a while (`/limits`: lookup_secs) is `pending`, to be asked again.
    """
    until = time.monotonic() + state.limits.lookup_secs
    asked, outcomes, refused = await run_sync(
        _first_look, state, asking, body, until, limiter=state.lookups
    )
    open_works = [
        state.answers.untuned.name(key, asked.target.key)
        for key, outcome in outcomes.items()
        if not is_settled(outcome)
    ]
    if open_works:
        with waited.on_purpose():
            await state.watch.wait(open_works, until - time.monotonic())
    content, grades, retry_after = await run_sync(
        _told, state, asked, outcomes, refused, limiter=state.lookups
    )
    for grade in grades:
        state.metrics.answer(grade)
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return Response(content, media_type="application/json", headers=headers)


def _first_look(
    state: ServiceState, asking: Principal, body: bytes, until: float
) -> tuple[Lookup, dict[str, Outcome], set[str]]:
    """What is asked, what is known of it, and what could not be had prepared."""
    document: Any = parse_body(body, state.limits.lookup_json_nodes)
    model = read_model(LookupIn, document)
    asked = lookup.read_lookup(state.store, state.answers.spelled, model)
    outcomes = lookup.find_all(state.answers.book, asked)
    wanted = lookup.wanted(state.store, state.answers.spelled, asked, outcomes)
    if not wanted:
        return asked, outcomes, set()
    tickets = _tickets(state, asking, asked.target)
    try:
        refused = state.answers.untuned.demand(wanted, asked.target, tickets, until, asking.owner)
    except StoreError as error:
        if not error.transient:
            raise
        # A database that takes no writes harms no item that has its answer.
        log.warning("nothing can be prepared: %s", error)
        state.metrics.store_error()
        refused = {one.workload_key for one in wanted}
    return asked, lookup.find_all(state.answers.book, asked), refused


def _told(
    state: ServiceState, asked: Lookup, outcomes: dict[str, Outcome], refused: set[str]
) -> tuple[bytes, list[str], int]:
    """The answer as it is now, the grades in it, and when to ask again (0: no need to)."""
    if not all(map(is_settled, outcomes.values())):
        outcomes = lookup.find_all(state.answers.book, asked)
    content, grades = lookup.told(asked, outcomes, refused)
    more = bool(refused) or not all(map(is_settled, outcomes.values()))
    return content, grades, state.answers.untuned.retry_after_secs() if more else 0
