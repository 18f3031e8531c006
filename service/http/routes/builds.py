"""Kernels as builds pin them: the object of a name, for one CPU or for any, made here."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from service.answers.links import MEDIA_TYPES
from service.build.kernels import BuildIn, build_kernel
from service.http.deps import JobBody, State, parse_body
from service.http.problems import problem_responses
from service.http.schemas import schema_ref
from service.resolve.requests import read_model

router = APIRouter(prefix="/v1", tags=["builds"])

BUILD_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": schema_ref(BuildIn)}},
    }
}


class BuildOut(BaseModel):
    """`kernel` is an entry of a lock file; `targets` describes its targets by key."""

    kernel: dict[str, Any]
    targets: dict[str, dict[str, Any]]


@router.post(
    "/builds",
    response_model=BuildOut,
    operation_id="buildKernel",
    openapi_extra=BUILD_BODY,
    responses=problem_responses(400, 404, 413, 415, 422, 507),
)
def build(state: State, body: JobBody) -> dict[str, Any]:
    """Make a kernel's object and header from the best records, and keep them as blobs.

    The same request and records give the same bytes; nothing is measured. Compiling happens in a
    process of its own.
    """
    asked = read_model(BuildIn, parse_body(body, state.limits.json_nodes))
    state.room.check()
    built = build_kernel(state.store, asked)
    for file in built.files:
        state.store.put_blob(file.data, MEDIA_TYPES[file.kind])
    return {"kernel": built.kernel.to_json(), "targets": built.targets}
