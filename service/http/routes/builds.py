"""Kernels for builds: objects for one CPU, or with variants for several."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from tilewright.service.answers.links import MEDIA_TYPES
from tilewright.service.build.kernels import BuildIn, build_kernel
from tilewright.service.build.lock_file import LockedKernel
from tilewright.service.build.pins import refused_pins
from tilewright.service.http.deps import JobBody, LookupBody, State, parse_body
from tilewright.service.http.schemas import PinsIn, PinsOut, problem_responses, schema_ref
from tilewright.service.resolve.requests import located, read_model

router = APIRouter(prefix="/v1", tags=["builds"])


BUILD_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": schema_ref(BuildIn)}},
    }
}


PINS_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": schema_ref(PinsIn)}},
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
    """Make a kernel's object and header from the best records, and store them as blobs.

    The same request and records give the same bytes. Nothing is measured. Compilation runs in a
    separate process.
    """
    request = read_model(BuildIn, parse_body(body, state.limits.json_nodes))
    state.room.check()
    built = build_kernel(state.store, request)
    for file in built.files:
        state.store.put_blob(file.data, MEDIA_TYPES[file.kind])
    return {"kernel": built.kernel.to_json(), "targets": built.targets}


@router.post(
    "/builds:check",
    response_model=PinsOut,
    operation_id="checkPins",
    openapi_extra=PINS_BODY,
    responses=problem_responses(400, 413, 415, 422),
)
def check(state: State, body: LookupBody) -> dict[str, Any]:
    """Return the entries of a lock file that must not be used, because their schedule failed a full
    check after it was pinned. Nothing is built."""
    request = read_model(PinsIn, parse_body(body, state.limits.lookup_json_nodes))
    kernels = [
        located(f"/kernels/{number}", partial(LockedKernel.from_json, entry))
        for number, entry in enumerate(request.kernels)
    ]
    return {"refused": [pin.to_json() for pin in refused_pins(state.store, kernels)]}
