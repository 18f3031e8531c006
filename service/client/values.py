"""The service's responses as values. `document` has all fields of a response, including fields that
this version does not know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Job:
    """A job as last reported by the service. `best` is None until there is one. `queue` has the
    `position` of a waiting job, and the `reason`. `sharing` has the number of `owners`, and whether
    the owner of this key has `withdrawn`. The id of a job that was only validated is "None"."""

    id: str
    state: str
    done: bool
    workload: dict[str, Any]
    target: dict[str, Any] | None
    progress: dict[str, Any]
    best: dict[str, Any] | None
    error: dict[str, Any] | None
    queue: dict[str, Any] | None = None
    sharing: dict[str, Any] | None = None
    document: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Self:
        return cls(
            id=str(document["id"]),
            state=str(document["state"]),
            done=bool(document["done"]),
            workload=document["workload"],
            target=document.get("target"),
            progress=document.get("progress") or {},
            best=document.get("best"),
            error=document.get("error"),
            queue=document.get("queue"),
            sharing=document.get("sharing"),
            document=document,
        )


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a job's stream. A stream can be resumed after the event with this `id`."""

    id: str
    kind: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Best:
    """The best known answer. A request with `etag` returns nothing if the answer is unchanged.
    `artefacts["object"]["key"]` is the key of the object file for `Client.blob`."""

    grade: str
    record_key: str | None
    run_secs: float | None
    trace: list[Any]
    artefacts: dict[str, dict[str, Any]]
    etag: str
    document: dict[str, Any] = field(compare=False, repr=False)

    @classmethod
    def from_json(cls, document: dict[str, Any], headers: Mapping[str, str]) -> Self:
        return cls(
            grade=str(document["grade"]),
            record_key=document["record_key"],
            run_secs=document["run_secs"],
            trace=document["trace"],
            artefacts=document.get("artefacts") or {},
            etag=headers.get("etag", ""),
            document=document,
        )
