"""Immutable resources by hash: records and blobs."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from fastapi.responses import JSONResponse

from tilewright.service.answers.links import MEDIA_TYPES, links
from tilewright.service.errors import NotFound
from tilewright.service.http.caching import etag_matches
from tilewright.service.http.deps import State, checked_key
from tilewright.service.http.schemas import problem_responses

router = APIRouter(prefix="/v1", tags=["stored"])

IMMUTABLE = "public, max-age=31536000, immutable"
SAME: dict[int | str, dict[str, Any]] = {
    304: {"description": "The client has it (If-None-Match). It never changes."}
}

IfNoneMatch = Annotated[str | None, Header()]


@router.get(
    "/records/{key}", operation_id="readRecord", responses={**SAME, **problem_responses(404)}
)
def record(state: State, key: str, if_none_match: IfNoneMatch = None) -> Response:
    """One measurement: trace, samples, toolchain; `artefacts` names the files built from it."""
    name = "sha256:" + checked_key(key, "record").removeprefix("sha256:")
    if etag_matches(if_none_match, etag := f'"{name}"') and if_none_match != "*":
        return _same(etag)  # only an immutable response has this tag
    found = state.store.record(name)
    if found is None:
        raise NotFound(f"record {name}: not stored here")
    files = links(state.store.artefacts(name))
    document: dict[str, Any] = {"key": name, **found.to_json(), "artefacts": files}
    # Files can still be added to a record that was verified in full and has none.
    settled = files or found.verified_level != "full"
    return JSONResponse(
        document,
        headers={
            "ETag": etag if settled else f'"{name};no-files"',
            "Cache-Control": IMMUTABLE if settled else "no-cache",
        },
    )


@router.get(
    "/blobs/{key}",
    operation_id="readBlob",
    response_class=Response,
    responses={
        200: {
            "description": "The bytes: an object file, a header, LLVM IR.",
            "content": {media.partition(";")[0]: {"schema": {"type": "string", "format": "binary"}}
                        for media in MEDIA_TYPES.values()},
        },
        **SAME,
        **problem_responses(404),
    },
)  # fmt: skip
def blob(state: State, key: str, if_none_match: IfNoneMatch = None) -> Response:
    """Return bytes by their SHA-256. Clients should verify the hash."""
    digits = checked_key(key, "blob").removeprefix("sha256:")
    if etag_matches(if_none_match, etag := f'"sha256:{digits}"') and if_none_match != "*":
        return _same(etag)
    found = state.store.blob(digits)
    if found is None:
        raise NotFound(f"blob {digits}: not stored here")
    return Response(
        found.data,
        media_type=found.media_type,
        headers={
            "ETag": etag,
            "Cache-Control": IMMUTABLE,
            # A blob may contain anything; a browser must not run it.
            "Content-Disposition": "attachment",
            "X-Content-Type-Options": "nosniff",
        },
    )


def _same(etag: str) -> Response:
    """Return 304 without reading anything: the client has the bytes with this tag."""
    return Response(status_code=304, headers={"ETag": etag, "Cache-Control": IMMUTABLE})
