"""Adds to the OpenAPI document the facts that FastAPI does not know: keys and scopes, workloads,
names, wait times, page tokens."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from tilewright.schedules.algebra.functions import UnaryOp
from tilewright.service.http.deps import JOB_ID_PATTERN, KEY_PATTERN, WAIT_PATTERN
from tilewright.service.http.route_rules import RULES, Rule
from tilewright.service.http.schemas import problem_responses, request_schemas
from tilewright.service.resolve.entries import MAX_NAME
from tilewright.tuner.many.entries import MAX_WEIGHT

Document = dict[str, Any]

WHOLE = "#/components/schemas/Workload"
"""The schema of workload documents."""

SCHEME: Document = {
    "type": "http",
    "scheme": "bearer",
    "bearerFormat": "tw_ID_SECRET",
    "description": "A key made by `tilewright keys create`, with the scope of the operation; "
    "`admin` permits everything. A service on a loopback address requires keys after the first key "
    "was created.",
}
NAMES: dict[str, Document] = {
    "Wait": {
        "type": "string",
        "pattern": f"^{WAIT_PATTERN}$",
        "examples": ["30s", "500ms", "1m"],
        "description": "A time: seconds, or a number with `ms`, `s` or `m`. At most `wait_secs` of "
        "`/limits` is used.",
    },
    "PageToken": {
        "type": "string",
        "maxLength": 200,
        "description": "`next_page_token` of the previous page, unchanged.",
    },
    "JobId": {"type": "string", "pattern": f"^{JOB_ID_PATTERN}$", "description": "A ULID."},
    "Key": {
        "type": "string",
        "pattern": f"^{KEY_PATTERN}$",
        "description": "A SHA-256 in hexadecimal, with or without `sha256:`.",
    },
}
PARAMETERS = {
    "wait": "Wait", "page_token": "PageToken", "job_id": "JobId", "key": "Key",
    "workload_key": "Key", "target_key": "Key",
}  # fmt: skip
NOTATION: Document = {
    "type": "object",
    "description": "Index notation. `tensors` lists the arguments in order.",
    "required": ["expr", "tensors"],
    "additionalProperties": False,
    "properties": {
        "expr": {"type": "string", "minLength": 1, "examples": ["C[i,j] += A[i,k] * B[k,j]"]},
        "tensors": {
            "type": "object",
            "additionalProperties": {"type": "string", "examples": ["f32[512,512]"]},
        },
        "ranges": {"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
        "allow_error": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    },
}


def complete(document: Document) -> Document:
    """Add the facts to `document`, and return it."""
    components = document.setdefault("components", {})
    components.setdefault("securitySchemes", {})["key"] = SCHEME
    schemas = components.setdefault("schemas", {})
    schemas.update(request_schemas())
    schemas.update(NAMES)
    schemas.update(workload_schemas())
    schemas["WorkloadNotation"] = NOTATION
    for name in ("JobIn", "LookupIn"):
        schemas[name] = _with_workloads(schemas[name])
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            _complete_operation(operation, RULES.get((method.upper(), path)))
    return document


def workload_schemas() -> dict[str, Document]:
    """Return the schema of workload documents, with its parts as separate schemas (`Workload...`)
    and the scalar functions of this version."""
    text = (
        resources.files("tilewright.service.http")
        .joinpath("workload.schema.json")
        .read_text("utf-8")
    )
    whole = json.loads(text)
    parts = whole.pop("$defs")
    parts["function"] = {"enum": [op.value for op in UnaryOp]}
    whole.pop("$schema")
    named = {"Workload": whole} | {_part(name): part for name, part in parts.items()}
    for name in parts:
        named = _replaced(named, f"#/$defs/{name}", f"#/components/schemas/{_part(name)}")
    return named


def _complete_operation(operation: Document, rule: Rule | None) -> None:
    for parameter in operation.get("parameters", []):
        name = PARAMETERS.get(parameter["name"])
        if name is not None:
            parameter["schema"] = {"$ref": f"#/components/schemas/{name}"}
    if rule is not None and rule.scope is None:
        operation["security"] = []
        return
    operation["security"] = [{"key": [str(rule.scope) if rule and rule.scope else "admin"]}]
    statuses = [401, 403, 429] + ([408] if "requestBody" in operation else [])
    for status, answer in problem_responses(*statuses).items():
        operation["responses"].setdefault(str(status), answer)


def _with_workloads(schema: Document) -> Document:
    """Return a request's schema with the schemas of workload documents in place of free objects."""
    properties = dict(schema["properties"])
    forms: list[Document] = [{"$ref": WHOLE}, {"$ref": "#/components/schemas/WorkloadNotation"}]
    if "workload" in properties:
        properties["workload"] = _choice(properties["workload"], forms)
        properties["workloads"] = _list_of_entries(properties["workloads"], properties["workload"])
        one_of = [{"required": ["workload"]}, {"required": ["workloads"]}]
        return {**schema, "properties": properties, "oneOf": one_of}
    items = _choice(properties["workloads"]["items"], forms)
    properties["workloads"] = {**properties["workloads"], "items": items}
    return {**schema, "properties": properties}


def _list_of_entries(schema: Document, workload: Document) -> Document:
    """Return the schema of a list of workloads, each alone or with its weight and name."""
    (array,) = [branch for branch in schema["anyOf"] if branch.get("type") == "array"]
    alone = {"anyOf": [branch for branch in workload["anyOf"] if branch.get("$ref") != WHOLE]}
    entry = {
        "type": "object",
        "required": ["workload"],
        "additionalProperties": False,
        "properties": {
            "workload": {"anyOf": workload["anyOf"]},
            "weight": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_WEIGHT},
            "name": {"type": "string", "maxLength": MAX_NAME},
        },
    }
    items = {"anyOf": [*alone["anyOf"], entry]}
    return {**array, "description": schema["description"], "items": items}


def _choice(schema: Document, forms: list[Document]) -> Document:
    texts = [branch for branch in schema["anyOf"] if branch.get("type") == "string"]
    return {**schema, "anyOf": texts + forms}


def _part(name: str) -> str:
    return "Workload" + name[:1].upper() + name[1:]


def _replaced(value: Any, old: str, new: str) -> Any:
    """Return `value` with each reference `old` replaced by `new`."""
    if isinstance(value, dict):
        return {
            name: new if name == "$ref" and part == old else _replaced(part, old, new)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [_replaced(part, old, new) for part in value]
    return value
