"""The workloads of one call with their weights; equal workloads become one task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from tilewright.schedules.errors import ErrorCategory, TilewrightError
from tilewright.schedules.workload.workload import Workload

MAX_ENTRIES = 1000
"""Largest number of workloads of one call: each open search keeps its space and its samples."""

MAX_WEIGHT = 1e12


class ManyError(TilewrightError):
    """A list of workloads that cannot be tuned. The message names the entry, and `pointer` is its
    place in the list."""

    code = "bad_entry"
    category = ErrorCategory.INVALID
    title = "Invalid list of workloads"
    advice = 'An entry is {"workload": ..., "weight": 2, "name": "..."}; see docs/cli.md.'

    def __init__(
        self, message: str, *, code: str = "bad_entry", pointer: str = "", advice: str = ""
    ) -> None:
        super().__init__(message)
        self.code = code
        self.pointer = pointer
        self.advice = advice or self.advice


@dataclass(frozen=True, slots=True)
class ManyEntry:
    """A workload, its weight (calls per run of the whole program, above 0), and a name for
    reports. Without a name, the name of the workload is used."""

    workload: Workload
    weight: float = 1.0
    name: str = ""


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """One distinct workload: `weight` is the sum over its entries, `entries` are their positions
    in the list, from 0."""

    workload: Workload
    weight: float
    name: str
    entries: tuple[int, ...]


def check_count(count: int) -> None:
    """Raise ManyError unless `count` entries can be tuned in one call."""
    if count == 0:
        raise ManyError("the list of workloads is empty", code="no_workloads")
    if count > MAX_ENTRIES:
        raise ManyError(
            f"the list has {count} workloads; at most {MAX_ENTRIES} can be tuned in one call",
            code="too_many",
        )


def checked_weight(found: object, position: int, name: str = "") -> float:
    """Return the weight of the entry at `position`, or raise ManyError."""
    if isinstance(found, int | float) and not isinstance(found, bool):
        try:
            weight = float(found)
        except OverflowError:
            weight = float("inf")
        if isfinite(weight) and 0.0 < weight <= MAX_WEIGHT:
            return weight
    text = repr(found)
    raise ManyError(
        f"{entry_text(position, name)}: weight must be a number above 0, at most {MAX_WEIGHT:g};"
        f" got {text if len(text) <= 40 else text[:37] + '...'}",
        code="bad_weight",
        pointer=f"/{position}/weight",
    )


def entry_text(position: int, name: str = "") -> str:
    """Return the words that name the entry at `position` in messages: `entry 3 (conv1)`."""
    return f"entry {position + 1}" + (f" ({name[:60]})" if name else "")


def distinct_tasks(entries: Sequence[ManyEntry]) -> list[TaskSpec]:
    """Return one task per distinct workload key, in the order of the first entries.

    The task has the first name given to its workload. Raise ManyError for an invalid number of
    entries, an invalid weight, or one name for two different workloads.
    """
    check_count(len(entries))
    groups: dict[str, list[int]] = {}
    owners: dict[str, str] = {}
    for position, entry in enumerate(entries):
        checked_weight(entry.weight, position, entry.name)
        key = entry.workload.key
        groups.setdefault(key, []).append(position)
        if entry.name and owners.setdefault(entry.name, key) != key:
            raise ManyError(
                f"{entry_text(position, entry.name)}: an earlier entry has this name and is another"
                " workload",
                code="duplicate",
                pointer=f"/{position}/name",
            )
    tasks = []
    for key, positions in groups.items():
        own = [entries[position] for position in positions]
        given = next((entry.name for entry in own if entry.name), "")
        name = given or own[0].workload.name or key[:12]
        if owners.setdefault(name, key) != key:
            name = f"{name} ({key[:8]})"
        weight = sum(float(entry.weight) for entry in own)
        tasks.append(TaskSpec(own[0].workload, weight, name, tuple(positions)))
    return tasks
