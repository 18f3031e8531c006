"""Dependencies of routes: the service's state, the caller, a bounded body, page sizes, wait
times."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, Query, Request

from tilewright.service.access.keys import Principal
from tilewright.service.errors import BadRequest, InvalidField, NotFound, TooLarge, UnsupportedMedia
from tilewright.service.http.state import ServiceState
from tilewright.service.http.wait_time import WaitTime, wait_time_of
from tilewright.service.limits import RequestLimits
from tilewright.service.resolve import workloads

WAIT_PATTERN = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m)?"
KEY_PATTERN = "(?:sha256:)?[0-9a-f]{64}"
JOB_ID_PATTERN = "[0-9A-HJKMNP-TV-Z]{26}"
_WAIT = re.compile(WAIT_PATTERN)
_KEY = re.compile(KEY_PATTERN)
_JOB_ID = re.compile(JOB_ID_PATTERN)


def state_of(request: Request) -> ServiceState:
    state: ServiceState = request.app.state.service
    return state


async def service_state(request: Request) -> ServiceState:
    """Return `state_of(request)`, as a FastAPI dependency. It is asynchronous because FastAPI runs
    synchronous dependencies in a thread."""
    return state_of(request)


State = Annotated[ServiceState, Depends(service_state)]


async def caller(request: Request) -> Principal:
    """Return the caller, whom `Guard` has authenticated; routes check nothing. This is asynchronous
    because FastAPI runs synchronous dependencies in a thread."""
    principal: Principal = request.state.principal
    return principal


Caller = Annotated[Principal, Depends(caller)]


async def waited(request: Request) -> WaitTime:
    """Return the request's intentional waiting time. This is asynchronous because FastAPI runs
    synchronous dependencies in a thread."""
    return wait_time_of(request.scope)


Waited = Annotated[WaitTime, Depends(waited)]


NDJSON = "application/x-ndjson"


def body_reader(
    limit_of: Callable[[RequestLimits], int], media: str = "application/json"
) -> Callable[[Request], Awaitable[bytes]]:
    """Return a dependency that reads a body of type `media`. It stops reading at the limit."""

    async def read_body(request: Request) -> bytes:
        limit = limit_of(state_of(request).limits)
        _check_media(request, media)
        told = request.headers.get("content-length", "")
        if told.isdigit() and int(told) > limit:
            raise _too_large(limit)
        chunks: list[bytes] = []
        size = 0
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            chunks.append(chunk)
        return b"".join(chunks)

    return read_body


JobBody = Annotated[bytes, Depends(body_reader(lambda limits: limits.body_bytes))]
LookupBody = Annotated[bytes, Depends(body_reader(lambda limits: limits.lookup_body_bytes))]
LinesBody = Annotated[bytes, Depends(body_reader(lambda limits: limits.body_bytes, NDJSON))]


def parse_body(body: bytes, max_values: int) -> Any:
    """Parse a request's body as strict JSON; its size is already checked. Raise BadRequest for an
    empty body."""
    if not body.strip():
        raise BadRequest("the body is empty; a JSON object is needed", code="malformed_json")
    return workloads.parse_json(body, max_bytes=len(body), max_values=max_values)


def _check_media(request: Request, wanted: str) -> None:
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media != wanted and not (wanted == "application/json" and media.endswith("+json")):
        told = media[:60] or "missing"
        if wanted == "application/json":
            raise UnsupportedMedia(f"Content-Type is {told!r}")
        raise UnsupportedMedia(
            f"Content-Type is {told!r}", advice=f"Send `Content-Type: {wanted}`, not compressed."
        )
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMedia(f"Content-Encoding {encoding[:60]!r} is not supported")


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit} bytes")


def wait_secs(
    state: State,
    wait: Annotated[
        str | None,
        Query(description="Respond when the job is finished, or after this time, such as 30s."),
    ] = None,
) -> float:
    """Parse `?wait=30s` as seconds, clamped to the limit."""
    if wait is None:
        return 0.0
    match = _WAIT.fullmatch(wait)
    if match is None:
        raise InvalidField(
            f"wait={wait[:40]!r}: must be a time such as 30s or 500ms", code="bad_wait"
        )
    scale = {"ms": 1e-3, "s": 1.0, "m": 60.0}[match[2] or "s"]
    return min(float(match[1]) * scale, state.limits.wait_secs)


Wait = Annotated[float, Depends(wait_secs)]


def page_size(
    state: State,
    page_size: Annotated[
        int | None, Query(description="The largest number of items: 1 to 1000, by default 50.")
    ] = None,
) -> int:
    limits = state.limits
    if page_size is None:
        return limits.page_size
    return max(1, min(page_size, limits.page_size_max))


PageSize = Annotated[int, Depends(page_size)]
PageToken = Annotated[
    str | None, Query(description="`next_page_token` of the previous page.", max_length=200)
]


def checked_key(text: str, what: str) -> str:
    """Return a key of 64 digits, with or without `sha256:`. Raise NotFound if the text is
    invalid."""
    if not _KEY.fullmatch(text):
        raise NotFound(f"{what} {text[:100]!r}: a key is 64 hexadecimal digits, in lower case")
    return text


def checked_job_id(text: str) -> str:
    """Return a job id. Raise NotFound if the text is invalid."""
    if not _JOB_ID.fullmatch(text):
        raise NotFound(f"job {text[:60]!r}: no such job")
    return text
