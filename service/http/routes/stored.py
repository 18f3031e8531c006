"""Immutable things by their hash: records and blobs."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from service.answers.links import MEDIA_TYPES, links
from service.errors import NotFound
from service.http.deps import State, checked_key
from service.http.problems import problem_responses

router = APIRouter(prefix="/v1", tags=["stored"])

IMMUTABLE = "public, max-age=31536000, immutable"


@router.get("/records/{key}", operation_id="readRecord", responses=problem_responses(404))
def record(state: State, key: str) -> JSONResponse:
    """One measurement: trace, samples, toolchain; `artefacts` names the files built from it."""
    name = "sha256:" + checked_key(key, "record").removeprefix("sha256:")
    found = state.store.record(name)
    if found is None:
        raise NotFound(f"record {name}: not stored here")
    files = links(state.store.artefacts(name))
    document: dict[str, Any] = {"key": name, **found.to_json(), "artefacts": files}
    # Files may still come, once, to a record that was verified in full.
    settled = files or found.verified_level != "full"
    return JSONResponse(
        document,
        headers={
            "ETag": f'"{name}"' if settled else f'"{name};no-files"',
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
        **problem_responses(404),
    },
)  # fmt: skip
def blob(state: State, key: str) -> Response:
    """Bytes by their sha256. Check them against the name."""
    digits = checked_key(key, "blob").removeprefix("sha256:")
    found = state.store.blob(digits)
    if found is None:
        raise NotFound(f"blob {digits}: not stored here")
    return Response(
        found.data,
        media_type=found.media_type,
        headers={
            "ETag": f'"sha256:{digits}"',
            "Cache-Control": IMMUTABLE,
            # What is stored may be anything; a browser must not run it.
            "Content-Disposition": "attachment",
            "X-Content-Type-Options": "nosniff",
        },
    )
