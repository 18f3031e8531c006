"""The best known answer: one by keys, or a thousand at once."""

from __future__ import annotations

from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Query, Response

from service.answers import lookup
from service.answers.book import Finished, Lacking, Question
from service.answers.grades import Grade
from service.errors import NoAnswer
from service.http.deps import LookupBody, State, checked_key, parse_body
from service.http.problems import problem_responses
from service.http.schemas import AnswerOut, LookupOut, schema_ref
from service.http.state import ServiceState
from service.http.tags import names
from service.resolve.requests import GradeName, LookupIn, read_model

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
    responses={304: {"description": "Still the answer that If-None-Match names."},
               **problem_responses(404, 422)},
)  # fmt: skip
async def best(
    state: State,
    workload_key: str,
    target_key: str,
    min_grade: Annotated[GradeName, Query(description="The least exact answer that will do.")] = (
        "exact"
    ),
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The best known answer for a workload on a target, with its grade. Never measures."""
    question = Question(
        lookup.bare(checked_key(workload_key, "workload")),
        lookup.bare(checked_key(target_key, "target")),
        Grade(min_grade),
    )
    book = state.answers.book
    outcome = book.at_once(question)
    if outcome is None:
        (outcome,) = await run_sync(book.find, [question])
    if isinstance(outcome, Lacking):
        raise _no_answer(question, outcome)
    state.metrics.answer(outcome.grade.value)
    return _answer(outcome, if_none_match)


def _answer(found: Finished, if_none_match: str | None) -> Response:
    headers = {"ETag": found.etag, "Cache-Control": "no-cache", "Vary": "Accept"}
    if found.record_key:
        headers["Content-Location"] = f"/v1/records/{found.record_key}"
    if names(if_none_match, found.etag):
        return Response(status_code=304, headers=headers)
    return Response(found.body, media_type="application/json", headers=headers)


def _no_answer(question: Question, lacking: Lacking) -> NoAnswer:
    if not lacking.workload_known:
        return NoAnswer(
            f"workload {question.workload_key}: never tuned here",
            advice="Tune it, or ask POST /v1/best:lookup with its document.",
        )
    if not lacking.target_known:
        return NoAnswer(
            f"target {question.target_key}: never tuned for here",
            advice="Tune for it, or ask POST /v1/best:lookup with its document.",
        )
    return NoAnswer(f"no {question.minimum.value} answer stored for these keys")


@router.post(
    "/best:lookup",
    response_model=LookupOut,
    operation_id="lookUpBest",
    openapi_extra=LOOKUP_BODY,
    responses=problem_responses(400, 413, 415, 422),
)
async def look_up(state: State, body: LookupBody) -> Response:
    """Answers for up to 1,000 workloads on one target: found or missing, one by one.

    With documents or spellings and `min_grade` "default" there is never a miss for a valid one.
    """
    content, grades = await run_sync(_looked_up, state, body)
    for grade in grades:
        state.metrics.answer(grade)
    return Response(content, media_type="application/json")


def _looked_up(state: ServiceState, body: bytes) -> tuple[bytes, list[str]]:
    document: Any = parse_body(body, state.limits.lookup_json_nodes)
    asked = read_model(LookupIn, document)
    read = lookup.read_lookup(state.store, state.answers.spelled, asked)
    return lookup.told(read, lookup.find_all(state.answers.book, read))
