"""The best known answer: one by keys, or a thousand at once."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from service.answers.grades import Grade
from service.answers.lookup import answer_by_keys, look_up
from service.http.deps import LookupBody, State, checked_key, parse_body
from service.http.problems import problem_responses
from service.http.schemas import AnswerOut, LookupOut, schema_ref
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
def best(
    state: State,
    workload_key: str,
    target_key: str,
    min_grade: Annotated[GradeName, Query(description="The least exact answer that will do.")] = (
        "exact"
    ),
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """The best known answer for a workload on a target, with its grade. Never measures."""
    answer = answer_by_keys(
        state.store,
        checked_key(workload_key, "workload"),
        checked_key(target_key, "target"),
        Grade(min_grade),
        state.limits.default_secs,
    )
    state.metrics.answer(answer.grade.value)
    body = json.dumps(answer.to_json(), separators=(",", ":"), allow_nan=False).encode()
    etag = f'"{hashlib.sha256(body).hexdigest()}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache", "Vary": "Accept"}
    if answer.record_key:
        headers["Content-Location"] = f"/v1/records/{answer.record_key}"
    if if_none_match is not None and _names(if_none_match, etag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


@router.post(
    "/best:lookup",
    response_model=LookupOut,
    operation_id="lookUpBest",
    openapi_extra=LOOKUP_BODY,
    responses=problem_responses(400, 413, 415, 422),
)
def lookup(state: State, body: LookupBody) -> dict[str, Any]:
    """Answers for up to 1,000 workloads on one target: found or missing, one by one.

    With documents or spellings and `min_grade` "default" there is never a miss for a valid one.
    """
    asked = read_model(LookupIn, parse_body(body, state.limits.lookup_json_nodes))
    items = look_up(state.store, state.settings, asked)
    for item in items:
        state.metrics.answer(item["answer"]["grade"] if item["found"] else "none")
    return {"items": items}


def _names(if_none_match: str, etag: str) -> bool:
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or etag in tags
