"""The form for a new job: its fields, and the job request made from them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite, nan
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tilewright.db.values.jobs import StoredJob
from tilewright.service.errors import InvalidField
from tilewright.service.http.pages.commands import spelling
from tilewright.service.http.pages.forms import Fields
from tilewright.service.http.pages.workload_input import Spelled, Stored, workload_in
from tilewright.service.jobs.document import measurer_name
from tilewright.service.jobs.options import FLEET
from tilewright.service.problems import ProblemDetails
from tilewright.service.resolve import workloads
from tilewright.service.settings import Settings
from tilewright.tuner.search.strategies import Strategy

FIELDS = ("workload", "tensors", "ranges", "trials", "seconds", "threads", "measurer", "target",
          "strategy", "seed")  # fmt: skip
MOST_FILES = 200
FIELD_OF = {
    "/workload": "workload",
    "/target": "target",
    "/threads": "threads",
    "/budget/trials": "trials",
    "/budget/seconds": "seconds",
    "/strategy": "strategy",
    "/seed": "seed",
    "/measurer": "measurer",
}


@dataclass(frozen=True, slots=True)
class OperatorChoice:
    """An operator in the form; `example` is a complete workload."""

    name: str
    summary: str
    parameters: str
    example: str


@dataclass(frozen=True, slots=True)
class FormView:
    """The content of the form: entered values, choices, and a problem with the name of its field
    (`wrong`)."""

    values: Mapping[str, str]
    measurers: tuple[str, ...]
    measurer: str
    strategies: tuple[str, ...]
    operators: tuple[OperatorChoice, ...]
    problem: ProblemDetails | None = None
    wrong: str = ""

    def value(self, name: str, otherwise: str = "") -> str:
        return self.values.get(name) or otherwise


def form_view(
    settings: Settings, fields: Fields, problem: ProblemDetails | None = None
) -> FormView:
    wrong = ""
    if problem is not None:
        places = [f for pointer, f in FIELD_OF.items() if problem.pointer.startswith(pointer)]
        wrong = places[0] if places else "workload"
    return FormView(
        values=fields,
        measurers=measurers(settings),
        measurer=settings.default_measurer,
        strategies=tuple(Strategy),
        operators=operators(),
        problem=problem,
        wrong=wrong,
    )


EXAMPLE = {"N": 256, "M": 256, "K": 256, "B": 8, "L": 256, "D": 8, "H": 28, "W": 28, "C": 64,
           "CI": 64, "CO": 64, "seq": 128, "heads": 12, "dim": 64}  # fmt: skip
KERNEL = 3
"""The window size of convolutions and pools in examples; the parameter is also named K."""


@cache
def operators() -> tuple[OperatorChoice, ...]:
    return tuple(_operator(document) for document in workloads.operator_documents(None))


def _operator(document: Mapping[str, Any]) -> OperatorChoice:
    params = document["parameters"]
    needed = [param["name"] for param in params if param["default"] is None]
    sizes = {**EXAMPLE, "K": KERNEL} if {"H", "L"} & set(needed) else EXAMPLE
    example = ",".join(f"{name}={sizes.get(name, 8)}" for name in needed)
    shown = [p["name"] if p["default"] is None else f"{p['name']}={p['default']}" for p in params]
    name, summary = document["name"], document["summary"]
    return OperatorChoice(name, summary, ", ".join(shown), f"{name}:{example}")


def measurers(settings: Settings) -> tuple[str, ...]:
    fleet = (FLEET,) if settings.fleet else ()
    return ("local", *fleet, *measurer_files(settings.measurer_folder))


def measurer_files(folder: Path | None) -> tuple[str, ...]:
    """Return the files of timings that jobs may use, as `simulated:NAME.json` or
    `replay:NAME.jsonl`."""
    if folder is None:
        return ()
    kinds = {".json": "simulated", ".jsonl": "replay"}
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix in kinds)
    except OSError:  # removed since the service started
        return ()
    return tuple(f"{kinds[Path(name).suffix]}:{name}" for name in names[:MOST_FILES])


MOST_QUERY = 4000


def again(job: StoredJob) -> str:
    """Return the query that opens the form with the values of `job`."""
    form, summary = job.request, job.request["workload_summary"]
    return form_query({
        "workload": spelled(str(summary.get("name")), str(summary.get("key")), form["workload"]),
        "trials": form["budget"].get("trials"),
        "seconds": form["budget"].get("seconds"),
        "threads": form["threads"],
        "strategy": form["strategy"],
        "seed": form["seed"] or None,
        "measurer": measurer_name(str(form["measurer"])),
        "target": json.dumps(form["target"]) if isinstance(form["target"], dict) else None,
    })  # fmt: skip


def form_query(fields: Mapping[str, Any]) -> str:
    """Return the query that opens the form with `fields` (None: empty), or "" if a URL cannot have
    its length."""
    query = urlencode({name: value for name, value in fields.items() if value is not None})
    return query if len(query) <= MOST_QUERY else ""


def spelled(name: str, key: str, document: Any) -> str:
    """Return the name of the workload `key` if it defines the workload. Otherwise return the
    document."""
    return name if spelling(name, key) else json.dumps(document)


def job_document(fields: Fields, stored: Stored) -> dict[str, Any]:
    """Return the body of `POST /v1/jobs` for a form. Empty fields are omitted."""
    document: dict[str, Any] = {"workload": _workload(fields, stored)}
    if fields.get("target"):
        text = fields["target"]
        document["target"] = _json(text, "/target") if text[0] in "[{" else text
    budget: dict[str, Any] = {}
    if fields.get("trials"):
        budget["trials"] = _whole(fields["trials"], "/budget/trials")
    if fields.get("seconds"):
        budget["seconds"] = _number(fields["seconds"], "/budget/seconds")
    if budget:
        document["budget"] = budget
    for name in ("threads", "seed"):
        if fields.get(name):
            document[name] = _whole(fields[name], f"/{name}")
    for name in ("strategy", "measurer"):
        if fields.get(name):
            document[name] = fields[name]
    return document


def _workload(fields: Fields, stored: Stored) -> Spelled:
    """Return the workload as text, as a pasted document, or as index notation with its tensors."""
    text = fields.get("workload", "")
    if not text:
        raise InvalidField(
            "workload: this field is required, for example matmul:M=512,N=512,K=512",
            code="missing",
            pointer="/workload",
        )
    if text[0] in "[{" or not fields.get("tensors"):
        return workload_in(text, stored)
    notation: dict[str, Any] = {"expr": text, "tensors": _pairs(fields["tensors"], "tensors")}
    if fields.get("ranges"):
        ranges = _pairs(fields["ranges"], "ranges")
        notation["ranges"] = {name: _whole(n, "/workload/ranges") for name, n in ranges.items()}
    return notation


def _pairs(text: str, name: str) -> dict[str, str]:
    """Parse `A=f32[2,2] B=f32[2,2]`, on one line or on several."""
    found: dict[str, str] = {}
    try:
        words = shlex.split(text.replace(";", " "))
    except ValueError as error:
        raise InvalidField(f"{name}: {error}", pointer=f"/workload/{name}") from error
    for word in words:
        left, equals, right = word.partition("=")
        if not (left and equals and right):
            raise InvalidField(
                f"{name}: must be NAME=VALUE; got {word[:60]!r}", pointer=f"/workload/{name}"
            )
        found[left] = right
    return found


def _json(text: str, pointer: str) -> Any:
    found = workloads.parse_json(text.encode(), max_bytes=len(text.encode()), max_values=10_000)
    if not isinstance(found, dict):
        raise InvalidField(f"{pointer[1:]}: a JSON object is needed", pointer=pointer)
    return found


def _whole(text: str, pointer: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20):
        raise InvalidField(
            f"{pointer[1:]}: must be a whole number; got {text[:40]!r}", pointer=pointer
        )
    return int(text)


def _number(text: str, pointer: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = nan
    if not isfinite(found):
        raise InvalidField(
            f"{pointer[1:]}: must be a number of seconds; got {text[:40]!r}", pointer=pointer
        )
    return found
