"""Schemas of request bodies. Parsing is strict: an unknown field, text instead of a number or a
fraction instead of an integer is an error with a JSON pointer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tilewright.schedules.errors import TilewrightError
from tilewright.service.errors import InvalidField, Located, ServiceError
from tilewright.service.grade import Grade
from tilewright.service.limits import RequestLimits
from tilewright.tuner.search.strategies import Strategy

if TYPE_CHECKING:
    from tilewright.schedules.workload.workload import Workload
    from tilewright.service.settings import Settings

_LIMITS = RequestLimits()

StrategyName = Annotated[Strategy, Field(strict=False)]
GradeName = Annotated[Grade, Field(strict=False)]

EXAMPLE_JOB: dict[str, Any] = {
    "workload": "matmul:M=512,N=512,K=512",
    "target": "native",
    "threads": 1,
    "budget": {"trials": 64},
    "strategy": "annealing",
    "seed": 0,
}


class StrictModel(BaseModel):
    """A model without coercion and unknown fields."""

    model_config = ConfigDict(strict=True, extra="forbid")


class BudgetIn(StrictModel):
    """The budget of a job. `trials` includes the trials of earlier runs of the same search."""

    trials: Annotated[int, Field(ge=1, le=_LIMITS.trials_max)] = _LIMITS.trials_default
    seconds: Annotated[float, Field(gt=0, le=_LIMITS.seconds_max)] | None = None


Spelled = Annotated[str, Field(min_length=1, max_length=65_536)]


class JobIn(StrictModel):
    """`POST /v1/jobs`."""

    model_config = ConfigDict(
        strict=True, extra="forbid", json_schema_extra={"example": EXAMPLE_JOB}
    )

    workload: Annotated[str, Field(min_length=1, max_length=65_536)] | dict[str, Any] | None = (
        Field(
            default=None,
            description="Text such as `matmul:M=512,N=512,K=512`, a workload document, or "
            '`{"expr": ..., "tensors": {...}, "ranges": {...}}`.',
        )
    )
    workloads: (
        Annotated[list[str | dict[str, Any]], Field(min_length=1, max_length=_LIMITS.job_workloads)]
        | None
    ) = Field(
        default=None,
        description="In place of `workload`: several workloads, tuned under one budget of seconds. "
        'Each is text, or `{"workload": ..., "weight": 2, "name": "..."}`.',
    )
    target: Annotated[str, Field(min_length=1, max_length=256)] | dict[str, Any] = Field(
        default="native",
        description="`native`, or a target document; for a fleet (`measurer: dask`) also the name "
        "of a machine or a prefix of a target key.",
    )
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    budget: BudgetIn = BudgetIn()
    strategy: StrategyName = Strategy.ANNEALING
    seed: Annotated[int, Field(ge=0, le=_LIMITS.seed_max)] = 0
    measurer: Annotated[str, Field(min_length=1, max_length=512)] = "local"
    priority: Annotated[int, Field(ge=-1000, le=1000)] = Field(
        default=0, description="A job of higher priority starts first."
    )


class LookupIn(StrictModel):
    """`POST /v1/best:lookup`. Each workload is text such as `matmul:M=512,N=512,K=512`, a document
    or a key."""

    workloads: Annotated[
        list[str | dict[str, Any]], Field(min_length=1, max_length=_LIMITS.lookup_items)
    ]
    target: str | dict[str, Any] = Field(
        default="native", description="`native`, a target document, or a target key."
    )
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    min_grade: GradeName = Grade.EXACT


M = TypeVar("M", bound=BaseModel)


def read_model(model: type[M], document: Any) -> M:
    """Parse `document` as a `model`. Raise InvalidField, with the first error."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise _invalid(first["type"], first["loc"], first["msg"], first["input"]) from error


def json_pointer(location: Sequence[str | int]) -> str:
    """Return the JSON pointer (RFC 6901) of a location, such as `/budget/trials`."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in location)


def _invalid(kind: str, loc: Sequence[str | int], message: str, found: object) -> InvalidField:
    """Convert an error of Pydantic: name the field, the accepted values, and the value `found`."""
    if kind == "extra_forbidden":
        return InvalidField(
            f"{_where(loc)}: there is no such field",
            code="unknown_field",
            pointer=json_pointer(loc),
        )
    # Pydantic adds the branch of a union that it tried; this is not a member of the document.
    location = [part for part in loc if part not in _BRANCHES]
    where, pointer = _where(location), json_pointer(location)
    if kind == "missing":
        return InvalidField(f"{where}: this field is required", code="missing", pointer=pointer)
    wanted = _WANTED.get(str(location[0])) if location else "a JSON object"
    if wanted is None or len(location) > 2:
        wanted = message.removeprefix("Input should be ").removeprefix("String should have ")
    return InvalidField(f"{where}: must be {wanted}; got {_short(found)}", pointer=pointer)


_BRANCHES = frozenset(
    {"constrained-str", "str", "dict[str,any]", "float", "constrained-float", "literal['native']"}
)
_WANTED = {
    "workload": "text such as 'matmul:M=512,N=512,K=512', a workload document, or "
    '{"expr": ..., "tensors": {...}, "ranges": {...}}',
    "workloads": f"a list of texts or documents: 1 to {_LIMITS.job_workloads} in a job, 1 to "
    f"{_LIMITS.lookup_items} in a lookup (also keys)",
    "target": "'native' or a target document (a lookup also accepts a key)",
}


def _where(location: Sequence[str | int]) -> str:
    return ".".join(str(part) for part in location) or "the body"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def check_size(workload: Workload, settings: Settings) -> None:
    """Raise WorkloadError "too_large" if the workload needs more memory or iterations than this
    service accepts."""
    # Start-up: reading settings needs no workload.
    from tilewright.schedules.workload.size import check_limits

    check_limits(
        workload,
        max_bytes=settings.workload_bytes,
        max_iterations=settings.workload_iterations,
    )


T = TypeVar("T")


def located(pointer: str, make: Callable[[], T]) -> T:
    """Return the result of `make`. `pointer` is prefixed to the JSON pointers of its errors."""
    try:
        return make()
    except TilewrightError as error:
        if isinstance(error, ServiceError):
            raise
        raise Located(error, pointer) from error
