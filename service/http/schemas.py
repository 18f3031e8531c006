"""Schemas of responses for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from tilewright.service.build.kernels import BuildIn
from tilewright.service.resolve.requests import GradeName, JobIn, LookupIn, StrictModel

MOST_PINS = 1000

StateName = Literal["QUEUED", "RUNNING", "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED"]


class ProblemOut(BaseModel):
    """RFC 9457 problem details, with a stable `code` and `advice`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    advice: str
    errors: list[dict[str, str]]
    instance: str | None = None
    request_id: str | None = None


class QueueOut(BaseModel):
    """The queue position of a waiting job, from 1, and why it waits."""

    position: int
    reason: str


class SharingOut(BaseModel):
    """The number of `owners` of a job, and whether the caller has withdrawn from it. `names` are
    the owners; only keys with the scope `admin` get them."""

    owners: int
    withdrawn: bool
    names: list[str] | None


class JobOut(BaseModel):
    """A job. `best` is the verified best; `result` is the document of `tune --json`; `queue` is
    null if the job does not wait. In seconds: `queued_secs` is the time until its first worker,
    `elapsed_secs` from its submission to its end; null until then."""

    id: str | None
    state: StateName
    done: bool
    workload: dict[str, Any]
    target: dict[str, Any]
    request: dict[str, Any]
    progress: dict[str, Any]
    queue: QueueOut | None = None
    sharing: SharingOut | None = None
    queued_secs: float | None = None
    elapsed_secs: float | None = None
    best: dict[str, Any] | None
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    created_at: str | None
    started_at: str | None
    finished_at: str | None


class JobPage(BaseModel):
    jobs: list[JobOut]
    next_page_token: str | None


class TrialPage(BaseModel):
    trials: list[dict[str, Any]]
    next_page_token: str | None


class PinsIn(StrictModel):
    """`POST /v1/builds:check`: entries of a lock file."""

    kernels: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MOST_PINS)]


class FullCheckOut(BaseModel):
    """The result of a full check, and the key of the record that contains it."""

    status: str
    detail: str
    record_key: str


class RefusedPinOut(BaseModel):
    """A kernel pinned to a schedule that failed its full check."""

    name: str
    full_check: FullCheckOut


class PinsOut(BaseModel):
    """The kernels that must not be used any more."""

    refused: list[RefusedPinOut]


class ArtefactOut(BaseModel):
    """A stored file: `key` is its SHA-256, `url` returns its bytes."""

    name: str
    key: str
    bytes: int
    url: str


class AnswerOut(BaseModel):
    """The best known answer and its grade. Times are in seconds. If inputs are constant, `run_secs`
    is the time of a call with packed inputs.

    `evidence` is the extent of the record's full check: `cases` (sets of inputs) and
    `sampled_fraction` (fraction of the elements, 1.0 for all); null if unknown. `artefacts` are the
    stored files by kind ("object", "header", "llvm"). `ticket` is the job that tunes an untuned
    workload. `pending`: the preparation of this answer is not finished.
    """

    grade: GradeName
    workload: dict[str, Any]
    target: dict[str, Any]
    record_key: str | None
    run_secs: float | None
    run_secs_with_packing: float | None
    gflops: float | None
    rewritten: dict[str, Any] | None
    verified: bool
    evidence: dict[str, Any] | None
    note: str
    made_for: dict[str, Any] | None
    created_at: str | None
    artefacts: dict[str, ArtefactOut]
    ticket: str | None
    pending: bool
    trace: list[Any]


class PendingOut(BaseModel):
    """There is no answer yet; one is being prepared. Try again after `retry_after_secs`."""

    pending: Literal[True]
    detail: str
    ticket: str | None
    retry_after_secs: int


class LookupItem(BaseModel):
    """`pending`: a better answer is being prepared. `ticket` is the job that tunes the workload."""

    found: bool
    answer: AnswerOut | None
    problem: ProblemOut | None
    pending: bool
    ticket: str | None


class LookupOut(BaseModel):
    items: list[LookupItem]


def schema_ref(model: type[BaseModel]) -> dict[str, str]:
    """Return a reference to the schema of `model` in the OpenAPI document."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def request_schemas() -> dict[str, Any]:
    """Return the schemas of bodies that routes parse themselves."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (model, "validation") for model in (JobIn, LookupIn, BuildIn, PinsIn, ProblemOut)
    ]
    _, document = models_json_schema(models, ref_template="#/components/schemas/{model}")
    definitions: dict[str, Any] = document["$defs"]
    return definitions


MEDIA_TYPE = "application/problem+json"
DESCRIPTIONS = {
    400: "The request is malformed.",
    401: "There is no key, or it is invalid; see `code`.",
    403: "The key lacks the scope, or a page of another origin sends the request.",
    404: "Not found, or no acceptable answer.",
    408: "The body did not arrive in time.",
    409: "The current state does not permit the request.",
    413: "The body is larger than `/limits` allows.",
    415: "The body has the wrong media type, or is compressed.",
    422: "A value in the request is not acceptable.",
    429: "Too many concurrent requests; try again after `Retry-After`.",
    503: "The database or the fleet cannot be used now.",
    507: "The database has reached its size limit.",
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the error responses of a route, for OpenAPI."""
    return {
        status: {
            "description": DESCRIPTIONS[status],
            "content": {MEDIA_TYPE: {"schema": schema_ref(ProblemOut)}},
        }
        for status in statuses
    }
