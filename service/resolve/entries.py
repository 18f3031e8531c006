"""Lists of workloads with weights and names, from a file, a request or a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.many.entries import (
    ManyEntry,
    ManyError,
    check_count,
    checked_weight,
    distinct_tasks,
    entry_text,
)

FIELDS = ("workload", "weight", "name")
MAX_NAME = 200


def read_entries(found: object, read: Callable[[Any], Workload]) -> list[ManyEntry]:
    """Return the entries of a list.

    An entry is a mapping with `workload` and optionally `weight` and `name`, or only the workload.
    `read` returns the workload that a text, document or notation object describes. Raise ManyError
    for the first entry that is not valid; the message names it, and the pointer leads to it.
    """
    if not isinstance(found, Sequence) or isinstance(found, str | bytes):
        raise ManyError('must be a list of {"workload": ..., "weight": 2, "name": "..."}')
    check_count(len(found))
    entries = [_entry(one, position, read) for position, one in enumerate(found)]
    distinct_tasks(entries)
    return entries


def _entry(found: Any, position: int, read: Callable[[Any], Workload]) -> ManyEntry:
    if not isinstance(found, Mapping) or "expr" in found:
        return ManyEntry(_workload(found, position, "", f"/{position}", read))
    name = found.get("name", "")
    if not isinstance(name, str) or len(name) > MAX_NAME:
        raise ManyError(
            f"{entry_text(position)}: name must be text of at most {MAX_NAME} characters",
            code="bad_name",
            pointer=f"/{position}/name",
        )
    unknown = sorted(str(key) for key in found if key not in FIELDS)
    if "workload" not in found or unknown:
        missing = "workload" not in found
        what = "workload is missing" if missing else f"there is no field {unknown[0][:60]!r}"
        raise ManyError(
            f"{entry_text(position, name)}: {what}; the fields are {', '.join(FIELDS)}",
            code="missing" if missing else "unknown_field",
            pointer=f"/{position}",
        )
    weight = checked_weight(found.get("weight", 1.0), position, name)
    where = f"/{position}/workload"
    return ManyEntry(_workload(found["workload"], position, name, where, read), weight, name)


def _workload(
    spelled: Any, position: int, name: str, pointer: str, read: Callable[[Any], Workload]
) -> Workload:
    if spelled is None or isinstance(spelled, bool | int | float | list):
        raise ManyError(
            f"{entry_text(position, name)}: workload must be text such as"
            " 'matmul:M=512,N=512,K=512', a workload document, or"
            ' {"expr": ..., "tensors": {...}, "ranges": {...}}',
            code="bad_spelling",
            pointer=pointer,
        )
    try:
        return read(spelled)
    except TilewrightError as error:
        raise ManyError(
            f"{entry_text(position, name)}: {error}",
            code=error.code,
            pointer=pointer + error.pointer,
            advice=error.advice,
        ) from error
