"""Finds the workload in pasted text. The text may be:

- the document or the key of a workload
- one line of `tilewright export`, or its whole output
- a record, a job or an answer
- an entry of a lock file or of `tune --many`
- the body of a request
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tilewright.service.errors import InvalidField
from tilewright.service.resolve import workloads

MOST_VALUES = 10_000
Stored = Callable[[str], dict[str, Any] | None]
"""A function that returns the document of the workload with a key, or None if it is not stored."""

Spelled = str | dict[str, Any]
_KEY = re.compile(r"(?:sha256:)?([0-9a-f]{64})")


def workload_in(text: str, stored: Stored) -> Spelled:
    """Return the workload in `text`, as text or document. Raise InvalidField if there is none."""
    text = text.strip()
    key = _KEY.fullmatch(text)
    if key is not None:
        return _of_key(key[1], stored)
    if text[:1] not in ("{", "["):
        return text
    documents = _documents(text)
    pasted = {
        str(one.get("key")): one["document"]
        for one in documents
        if one.get("kind") == "workload" and isinstance(one.get("document"), dict)
    }
    found = [_meant(one, lambda key: pasted.get(key) or stored(key)) for one in documents]
    distinct = {json.dumps(one, sort_keys=True): one for one in found if one is not None}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if not distinct:
        raise _wrong("it contains no workload, only a header or targets")
    raise _wrong(f"it contains {len(distinct)} workloads; paste the line of one of them")


def _documents(text: str) -> list[dict[str, Any]]:
    """Return the documents in `text`: one JSON object, a list of them, or JSON lines."""
    lines = [line for line in text.splitlines() if line.strip()]
    is_json_lines = len(lines) > 1 and all(line.lstrip().startswith("{") for line in lines)
    parts = lines if is_json_lines and _is_json(lines[0]) else [text]
    found: list[dict[str, Any]] = []
    for part in parts:
        size = len(part.encode())
        one = workloads.parse_json(part.encode(), max_bytes=size, max_values=MOST_VALUES)
        found += one if isinstance(one, list) else [one]
    if not all(isinstance(one, dict) for one in found):
        raise _wrong("a JSON object is needed")
    return found


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _meant(document: dict[str, Any], stored: Stored) -> Spelled | None:
    """Return the workload of one document, or None for a header or a target of an export."""
    if "stages" in document or "expr" in document:
        return document
    if document.get("kind") == "target" or "format" in document:
        return None
    for name in ("document", "workload", "record"):
        inner = document.get(name)
        if isinstance(inner, str) and name == "workload":
            return inner
        if isinstance(inner, dict):
            return _meant(inner, stored)
    for name in ("workload_key", "key"):
        key = _KEY.fullmatch(str(document.get(name)))
        if key is not None:
            return _of_key(key[1], stored)
    names = ", ".join(list(document)[:4]) or "nothing"
    raise _wrong(
        f"a JSON object with {names} is not a workload, which has inputs, stages and outputs, or "
        "expr and tensors"
    )


def _of_key(key: str, stored: Stored) -> dict[str, Any]:
    document = stored(key)
    if document is None:
        raise _wrong(
            f"this service has no workload {key[:10]}...; paste its document, or its line of "
            "`tilewright export`"
        )
    return document


def _wrong(detail: str) -> InvalidField:
    return InvalidField(f"workload: {detail}", pointer="/workload")
