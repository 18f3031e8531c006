"""Workloads and targets as the JSON that commands send to a service.

The service parses and checks them, so commands need no NumPy. Only a Python file is run here,
because code is never sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.schedules.workload.checks import check_allowed_error
from tilewright.service.cli.many_list import spelled_list
from tilewright.service.errors import InvalidField
from tilewright.service.resolve.spelling import (
    WorkloadSpelling,
    assignments,
    check_one_spelling,
    is_python,
    ranges,
    read_json,
)
from tilewright.service.resolve.workloads import read_workload


def workload_payload(spelling: WorkloadSpelling) -> str | dict[str, Any]:
    """Return the `workload` field of a job."""
    check_one_spelling(spelling)
    check_allowed_error(spelling.allow_error)  # JSON has no NaN
    if spelling.constant:
        return _parsed_here(spelling)
    error = spelling.allow_error
    if spelling.notation is not None:
        notation: dict[str, Any] = {
            "expr": spelling.notation,
            "tensors": assignments(spelling.tensor, "--tensor"),
            "ranges": ranges(spelling.range),
        }
        return notation if error is None else {**notation, "allow_error": error}
    text = str(spelling.workload)
    if is_python(text):
        return _parsed_here(spelling)
    if text.endswith(".json"):
        document = read_json(Path(text))
        if not isinstance(document, dict):
            raise InvalidField(f"{text} is not a workload document (a JSON object)")
        return document if error is None else {**document, "allowed_error": error}
    if error is None:
        return text
    return f"{text}{',' if ':' in text else ':'}allow_error={error!r}"


def many_payload(
    spelling: WorkloadSpelling, more: Sequence[str], file: str | None
) -> list[str | dict[str, Any]]:
    """Return the `workloads` field of a job. The service checks its entries; workloads in files are
    read here."""
    found = spelled_list(spelling, more, file)
    if not isinstance(found, list):
        raise InvalidField(
            f'{file} must be a list of {{"workload": ..., "weight": 2, "name": "..."}}'
        )
    return [_entry(one) for one in found]


def _entry(entry: Any) -> Any:
    if isinstance(entry, str):
        payload = workload_payload(WorkloadSpelling(entry))
        return payload if isinstance(payload, str) else {"workload": payload}
    if isinstance(entry, dict) and isinstance(entry.get("workload"), str):
        return {**entry, "workload": workload_payload(WorkloadSpelling(entry["workload"]))}
    return entry


def _parsed_here(spelling: WorkloadSpelling) -> dict[str, Any]:
    """Return the document of a workload that the service cannot parse."""
    return read_workload(spelling).to_json()


def target_payload(spec: str) -> str | dict[str, Any]:
    """Return the `target` field of a job. A text that is not a file may be the name of a machine in
    a fleet."""
    if spec == "native" or not (spec.endswith(".json") or Path(spec).exists()):
        return spec
    document = read_json(Path(spec))
    if not isinstance(document, dict):
        raise InvalidField(f"{spec} is not a target description (a JSON object)")
    return document
