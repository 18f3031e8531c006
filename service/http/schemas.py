"""The shapes of answers over HTTP, for OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from tilewright.service.build.kernels import BuildIn
from tilewright.service.resolve.requests import GradeName, JobIn, LookupIn, StrictModel

MOST_PINS = 1000

StateName = Literal["QUEUED", "RUNNING", "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED"]


class ProblemOut(BaseModel):
    """RFC 9457 problem details, with a stable `code` and what to do."""

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
    """Where a job stands that waits: its position, from 1, and why."""

    position: int
    reason: str


class SharingOut(BaseModel):
    """How many owners want the job, and whether the one who asks has withdrawn from it. `names` are
    told to keys with the scope `admin`."""

    owners: int
    withdrawn: bool
    names: list[str] | None


class JobOut(BaseModel):
    """A job. `best` is the verified winner; `result` is the document of `tune --json`; `queue` is
    null for a job that does not wait. Seconds: `queued_secs` until its first worker, `elapsed_secs`
    from its submission to its end; null before."""

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
    """The result of a full check, and the record that holds it."""

    status: str
    detail: str
    record_key: str


class RefusedPinOut(BaseModel):
    """A kernel that is pinned to a schedule that failed its full check."""

    name: str
    full_check: FullCheckOut


class PinsOut(BaseModel):
    """The kernels that are handed out no more; empty if all may be used."""

    refused: list[RefusedPinOut]


class ArtefactOut(BaseModel):
    """A stored file: `key` is its sha256, `url` gives its bytes."""

    name: str
    key: str
    bytes: int
    url: str


class AnswerOut(BaseModel):
    """The best known answer and its grade. Times in seconds; where inputs are constant `run_secs`
    is of a call that finds them packed.

    `evidence` is what the full check of the record compared: `cases` (sets of inputs) and
    `sampled_fraction` (share of the elements, 1.0 for all); null where that is not known.
    `artefacts` are the files of the record by kind ("object", "header", "llvm"), where kept.
    `ticket` is the job that tunes what was not tuned; `pending`: more of this is being prepared.
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
    """No answer yet: one is being prepared. Ask again after `retry_after_secs`."""

    pending: Literal[True]
    detail: str
    ticket: str | None
    retry_after_secs: int


class LookupItem(BaseModel):
    """`pending`: ask again, there is more to come; `ticket` is the job that tunes it."""

    found: bool
    answer: AnswerOut | None
    problem: ProblemOut | None
    pending: bool
    ticket: str | None


class LookupOut(BaseModel):
    items: list[LookupItem]


def schema_ref(model: type[BaseModel]) -> dict[str, str]:
    """A reference to `model` in the OpenAPI document; `request_schemas` puts it there."""
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def request_schemas() -> dict[str, Any]:
    """Schemas that routes refer to but FastAPI does not see, as bodies are read by us."""
    models: list[tuple[type[BaseModel], JsonSchemaMode]] = [
        (model, "validation") for model in (JobIn, LookupIn, BuildIn, PinsIn, ProblemOut)
    ]
    _, document = models_json_schema(models, ref_template="#/components/schemas/{model}")
    definitions: dict[str, Any] = document["$defs"]
    return definitions


MEDIA_TYPE = "application/problem+json"
DESCRIPTIONS = {
    400: "The request cannot be read.",
    401: "No key, or one that is not valid (any more): `code` says which.",
    403: "The key has not the scope, or a page of another origin asks.",
    404: "No such thing, or no answer good enough.",
    408: "The body did not arrive in time.",
    409: "Contradicts the state of things.",
    413: "Larger than `/limits` allows.",
    415: "Not of the media type this takes, or compressed.",
    422: "Read, but something in it will not do.",
    429: "Too many at once; `Retry-After` says when to come back.",
    503: "The database, or the fleet, cannot be used at the moment.",
    507: "The database has reached the size it may have.",
}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The errors a route can answer with, for OpenAPI."""
    return {
        status: {
            "description": DESCRIPTIONS[status],
            "content": {MEDIA_TYPE: {"schema": schema_ref(ProblemOut)}},
        }
        for status in statuses
    }
