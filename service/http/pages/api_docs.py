"""`/docs`: every route of the API on one page, generated from the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from tilewright.service.http.pages.render import page
from tilewright.service.problems import documented_classes, status_of
from tilewright.tuner.measure.fleet import address as _fleet_errors  # noqa: F401  # to be listed

router = APIRouter(include_in_schema=False)

TITLES = {
    "jobs": "Jobs",
    "best": "Answers",
    "builds": "Builds",
    "stored": "Records and files",
    "fleet": "Fleet",
    "operation": "Operation",
}
"""Titles of the groups of routes, by tag."""

Pieces = tuple[tuple[str, bool], ...]
"""Parts of a text, and whether each part is code."""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    where: str
    text: Pieces


@dataclass(frozen=True, slots=True)
class Operation:
    """One route. `anchor` is its id on the page. `scope` is "" if no key is required. `body` is an
    example, or the fields of the body."""

    anchor: str
    method: str
    path: str
    text: Pieces
    scope: str
    parameters: tuple[Parameter, ...]
    body: str
    answers: tuple[tuple[str, Pieces], ...]


@dataclass(frozen=True, slots=True)
class Group:
    title: str
    anchor: str
    operations: tuple[Operation, ...]


@router.api_route("/docs", methods=["GET", "HEAD"])
def docs(request: Request) -> HTMLResponse:
    """The API on one page."""
    openapi = request.app.openapi()
    problems = [
        (cls.code, status_of(cls)[0], cls.title, pieces(cls.advice)) for cls in documented_classes()
    ]
    return page(
        request,
        "docs.html",
        info=openapi["info"],
        groups=groups(openapi),
        problems=problems,
    )


def groups(openapi: Mapping[str, Any]) -> tuple[Group, ...]:
    """Return the operations grouped by tag. Within a group they have the order of the routes."""
    found = [
        (operation.get("tags", [""])[0], _operation(method, path, operation, openapi))
        for path, methods in openapi["paths"].items()
        for method, operation in methods.items()
    ]
    order = list(TITLES)
    found.sort(key=lambda one: order.index(one[0]) if one[0] in order else len(order))
    return tuple(
        Group(TITLES.get(tag, tag.capitalize()), tag, tuple(one for _, one in some))
        for tag, some in groupby(found, key=lambda one: one[0])
    )


def pieces(text: str) -> Pieces:
    """Split text into parts; `code` is between backticks."""
    return tuple((part, bool(n % 2)) for n, part in enumerate(text.split("`")) if part)


def _operation(
    method: str, path: str, operation: Mapping[str, Any], openapi: Mapping[str, Any]
) -> Operation:
    scopes = [s for choice in operation.get("security", []) for s in choice.get("key", [])]
    return Operation(
        anchor=operation["operationId"],
        method=method.upper(),
        path=path,
        text=pieces(operation.get("description") or operation.get("summary", "")),
        scope=", ".join(scopes),
        parameters=tuple(
            Parameter(p["name"], p["in"], pieces(_about(p, openapi)))
            for p in operation.get("parameters", [])
        ),
        body=_body(operation, openapi),
        answers=tuple(
            (status, pieces(_outcome(answer)))
            for status, answer in sorted(operation.get("responses", {}).items())
        ),
    )


def _about(parameter: Mapping[str, Any], openapi: Mapping[str, Any]) -> str:
    """Return the description of a parameter or of its type."""
    schema = _resolved(parameter.get("schema", {}), openapi)
    text = parameter.get("description") or schema.get("description") or ""
    choices = schema.get("enum") or next(
        (part["enum"] for part in schema.get("anyOf", []) if "enum" in part), None
    )
    if choices:
        text = f"{text} One of {', '.join(f'`{choice}`' for choice in choices)}.".strip()
    return str(text)


def _outcome(answer: Mapping[str, Any]) -> str:
    """Return the description of a response, instead of FastAPI's default text."""
    text = str(answer.get("description", ""))
    return "Success: see `200` in `/openapi.json`." if _is_bare(text) else text


def _is_bare(text: str) -> bool:
    return text in ("", "Successful Response")


def _body(operation: Mapping[str, Any], openapi: Mapping[str, Any]) -> str:
    content = operation.get("requestBody", {}).get("content", {})
    if "application/json" not in content:
        return "\n".join(
            _resolved(one["schema"], openapi)["description"] for one in content.values()
        )
    schema = _resolved(content["application/json"]["schema"], openapi)
    return json.dumps(schema.get("example") or _fields(schema), indent=2)


def _resolved(schema: Mapping[str, Any], openapi: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    found: Mapping[str, Any] = openapi["components"]["schemas"][reference.rpartition("/")[2]]
    return found


def _fields(schema: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: str(field.get("description") or field.get("type") or field.get("enum") or "...")
        for name, field in schema.get("properties", {}).items()
    }
