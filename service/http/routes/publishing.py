"""Import of records over HTTP. They are claims until they are verified here."""

from __future__ import annotations

import io

from anyio.to_thread import run_sync
from fastapi import APIRouter
from pydantic import BaseModel, Field

from tilewright.service.errors import BadRequest, TooLarge
from tilewright.service.http.deps import NDJSON, LinesBody, State
from tilewright.service.http.schemas import problem_responses

router = APIRouter(prefix="/v1", tags=["stored"])

MOST_LINES = 10_000
"""Lines per request. An export within the size limit has far fewer."""
MOST_REASON_CHARACTERS = 300

LINES_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            NDJSON: {
                "schema": {
                    "type": "string",
                    "minLength": 1,
                    "description": "The output of `tilewright export`: one JSON object per line. "
                    "The header is first; each workload and target is before its records.",
                }
            }
        },
    }
}


class RefusedLine(BaseModel):
    """A refused line, counted from 1, and the reason."""

    line: int
    reason: str


class PublishOut(BaseModel):
    """The number of records that are `new`, `known` already, and `refused`."""

    new: int
    known: int
    refused: int
    refusals: list[RefusedLine] = Field(description="One item for each refused line.")


@router.post(
    "/records",
    response_model=PublishOut,
    operation_id="publishRecords",
    openapi_extra=LINES_BODY,
    responses=problem_responses(400, 413, 415, 422, 503, 507),
)
async def publish(state: State, body: LinesBody) -> PublishOut:
    """Store exported records as claims of the sender, as `tilewright import` does.

    A claim is never best. When its workload is requested, it is rebuilt, checked in full and timed
    here, and only the resulting record may become best. Records that are stored already are only
    counted.
    """
    if not body.strip():
        raise BadRequest("the body is empty; an export begins with its header", code="no_records")
    if body.count(b"\n") + body.count(b"\r") > MOST_LINES:
        raise TooLarge(f"more than {MOST_LINES} lines", advice="Send them in several requests.")
    # As in a file import: invalid UTF-8 affects its own line only.
    lines = io.TextIOWrapper(io.BytesIO(body), encoding="utf-8", errors="surrogateescape")
    await run_sync(state.room.check)
    report = await state.write(state.store.import_, lines)
    return PublishOut(
        new=report.added,
        known=report.known,
        refused=len(report.bad),
        refusals=[
            RefusedLine(line=bad.line, reason=bad.reason[:MOST_REASON_CHARACTERS])
            for bad in report.bad
        ],
    )
