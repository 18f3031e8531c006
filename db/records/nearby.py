"""The records that a search for a similar task can use, without SQLAlchemy.

A task is a workload on a target. `Store` and `db.quick` pass a function that executes SQL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from tilewright.schedules.record import TuningRecord
from tilewright.schedules.related import RelatedRecords, usable
from tilewright.schedules.target import Target
from tilewright.schedules.workload.structure import Structure, distance, structure_of
from tilewright.schedules.workload.workload import Workload

from ..core.hashes import TARGET, WORKLOAD, is_intact
from ..values.records import IMPORTED, MAX_COMPARED, MAX_RECORDS
from .family import is_of_family, machine_name, vectors_differ
from .rows import NOT_WITHDRAWN, from_rows

Query: TypeAlias = Callable[[str, dict[str, Any]], Iterable[Any]]
"""Executes SQL with named parameters; its rows have an attribute per column."""

ALWAYS = "~"
"""A text that sorts after every time: no record is too late."""

_MEASURED, _CLAIMED = f"<> '{IMPORTED}'", f"= '{IMPORTED}'"

_RECORD = (
    "record.workload_key = {workload} AND record.target_key = {target} AND record.status = 'ok'"
    " AND record.created_at < :before AND record.verified_level {level}"
)

_OF_TASK = _RECORD.replace("{workload}", "workload.key").replace("{target}", "target.key")

_TASKS = (
    "SELECT workload.*, target.key AS target_key FROM workload, target"  # noqa: S608  # our own text
    f" WHERE {{which}} AND EXISTS (SELECT 1 FROM record WHERE {_OF_TASK})"
    f" ORDER BY {{order}}workload.created_at DESC, target.key LIMIT {MAX_COMPARED}"
)
_FASTEST_FIRST = f"(SELECT min(record.estimate_secs) FROM record WHERE {_OF_TASK}), "  # noqa: S608

_ALIKE = "workload.structure = :structure"
_OTHER = "target.key = :target AND workload.key <> :workload"

_SPELLINGS = _TASKS.format(
    which=f"workload.form = :form AND {_OTHER}",
    level=_MEASURED,
    order=_FASTEST_FIRST.format(level=_MEASURED),
)
_HERE = _TASKS.format(which=f"{_ALIKE} AND {_OTHER}", level=_MEASURED, order="")
_ELSEWHERE = _TASKS.format(
    which=f"{_ALIKE} AND (target.key <> :target OR workload.key = :workload)",
    level=_MEASURED,
    order="",
)
_IMPORTED = _TASKS.format(which=_ALIKE, level=_CLAIMED, order="")

_TARGETS = "SELECT * FROM target"

_FASTEST = (
    "SELECT record.* FROM record WHERE "  # noqa: S608  # our own text
    + _RECORD.replace("{workload}", ":workload").replace("{target}", ":target")
    + f" AND {NOT_WITHDRAWN} ORDER BY record.estimate_secs LIMIT {MAX_RECORDS}"
)


@dataclass(frozen=True, slots=True, order=True)
class _Task:
    """A task with records. The order is the order in which tasks are used."""

    distance: float
    is_imported: bool
    vectors_differ: bool
    workload_key: str
    name: str
    flops: int
    target_key: str
    machine: str

    def records(self, query: Query, before: str) -> tuple[TuningRecord, ...]:
        """Return the fastest usable records."""
        values = {"workload": self.workload_key, "target": self.target_key, "before": before}
        level = _CLAIMED if self.is_imported else _MEASURED
        return usable(from_rows(query(_FASTEST.format(level=level), values)))


def find_related(
    query: Query, workload: Workload, target: Target, count: int, before: str = ""
) -> list[RelatedRecords]:
    """Return the successful records with a setting of tasks that resemble `workload` on `target`.

    First up to `count` other spellings of this computation (`schedules.sketches.forms.spellings`),
    the fastest first, then the `count` nearest other workloads of the same structure, both measured
    on exactly this target. Then up to `count` tasks of this workload: on other targets of the same
    architecture, imported, or of this target (of which a caller leaves out its own toolchain). What
    is missing from `count` is filled with other workloads on other targets, and with imported ones.
    These parts are sorted by distance. Records created at the time `before` or later are left out
    if it is given.
    """
    # Start-up: stores that only look up answers need no rewrites.
    from tilewright.schedules.sketches.forms.spellings import form_key

    before = before or ALWAYS
    own = structure_of(workload)
    values = {"structure": own.key, "workload": workload.key, "target": target.key}
    values["before"] = before
    spelled = [*islice(_spellings(query, values | {"form": form_key(workload)}, before), count)]
    known = {one.records[0].workload_key for one in spelled}
    here = [_task(own, row, "") for row in _intact(query(_HERE, values), WORKLOAD)]
    here = sorted(task for task in here if task.workload_key not in known)
    found = _lent(query, here, count, before, workload)
    elsewhere = sorted(_elsewhere(query, own, target, values))
    same = [task for task in elsewhere if task.workload_key == workload.key]
    others = [task for task in elsewhere if task.workload_key != workload.key]
    found += _lent(query, same, count, before, workload)
    return spelled + found + _lent(query, others, count - len(found), before, workload)


def _spellings(query: Query, values: dict[str, str], before: str) -> Iterator[RelatedRecords]:
    """Yield the records of the other spellings of a computation on its target, the spelling with
    the fastest record first."""
    for row in _intact(query(_SPELLINGS, values), WORKLOAD):
        task = _Task(0.0, False, False, row.key, row.name, row.flops, row.target_key, "")
        records = task.records(query, before)
        if records:
            spelling = Workload.from_json(json.loads(row.document))
            yield RelatedRecords(row.name, 0.0, records, row.flops, spelling=spelling)


def _lent(
    query: Query, tasks: list[_Task], count: int, before: str, workload: Workload
) -> list[RelatedRecords]:
    """Return the records of the first `count` of `tasks`, without tasks that have no usable one."""
    return [
        RelatedRecords(
            name=task.name,
            distance=task.distance,
            records=records,
            flops=task.flops,
            origin=f"{task.machine} (imported)" if task.is_imported else task.machine,
            is_same_workload=task.workload_key == workload.key,
        )
        for task in tasks[: max(count, 0)]
        if (records := task.records(query, before))
    ]


def _elsewhere(
    query: Query, own: Structure, target: Target, values: dict[str, str]
) -> Iterator[_Task]:
    """Yield the tasks that were not measured on `target`, or are of this workload."""
    rows = [
        (row, is_imported)
        for sql, is_imported in ((_ELSEWHERE, False), (_IMPORTED, True))
        for row in _intact(query(sql, values), WORKLOAD)
    ]
    if not rows:
        return
    family = _family(query, target)
    for row, is_imported in rows:
        document = family.get(row.target_key)
        if document is None:
            continue
        is_own = row.target_key == target.key and not is_imported
        machine = "" if is_own else machine_name(target, document)
        yield _task(own, row, machine, is_imported, vectors_differ(target, document))


def _family(query: Query, target: Target) -> dict[str, dict[str, Any]]:
    """Return the documents of the stored targets of the architecture of `target`, by key."""
    documents = {row.key: json.loads(row.document) for row in _intact(query(_TARGETS, {}), TARGET)}
    return {key: one for key, one in documents.items() if is_of_family(target, one)}


def _task(
    own: Structure,
    row: Any,
    machine: str,
    is_imported: bool = False,
    vectors_differ: bool = False,
) -> _Task:
    gap = distance(own, structure_of(Workload.from_json(json.loads(row.document))))
    identity = row.key, row.name, row.flops, row.target_key
    return _Task(gap, is_imported, vectors_differ, *identity, machine)


def _intact(rows: Iterable[Any], columns: tuple[str, ...]) -> list[Any]:
    return [row for row in rows if is_intact(row, columns)]
