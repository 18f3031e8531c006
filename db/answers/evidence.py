"""The stored rows on which the answer for a task depends.

Equal rows give equal answers. A server caches each answer with its rows, and reuses it while the
stored rows are equal. This module reads raw rows; methods of `StoredEvidence` convert intact rows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, func, select, text, tuple_
from sqlalchemy.orm import Session

from tilewright.schedules.full_checks import FullChecks
from tilewright.schedules.record import TuningRecord

from ..core.hashes import (
    ARTEFACT,
    PREPARATION,
    PREPARED_FILE,
    RECORD,
    TARGET,
    WORKLOAD,
    as_row,
    guarded,
    is_intact,
)
from ..core.models import (
    ArtefactRow,
    BestRow,
    PreparationRow,
    PreparedFileRow,
    RecordRow,
    TargetRow,
    WorkloadRow,
)
from ..core.parts import StorePart, reading
from ..records.full_checks import Raw, checks_of, refusing_rows
from ..records.rows import IS_BEST, IS_OPEN_CLAIM, artefacts_of, from_row
from ..records.works import target_document, workload_entry
from ..values.answers import MAX_CLAIMS, PreparationState, Prepared, preparation_key
from ..values.records import Artefact, Work, WorkloadEntry
from .preparations import prepared_files

log = logging.getLogger("tilewright.db")

KEYS_PER_QUERY = 400  # SQLite limits the parameters of a statement, and a task has two

_WORKLOAD, _TARGET, _RECORD = guarded(WORKLOAD), guarded(TARGET), guarded(RECORD)
_FILE, _PREPARED_FILE = guarded(ARTEFACT), guarded(PREPARED_FILE)
_PREPARED = (*PREPARATION, "job_id", "row_sha256")
_WORKLOAD_AT, _TARGET_AT = RECORD.index("workload_key"), RECORD.index("target_key")


@dataclass(frozen=True, slots=True)
class StoredBest:
    """A best record, its key, and the JSON description of its target."""

    key: str
    record: TuningRecord
    target_document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """Every row on which the answer for one task depends."""

    work: Work
    workload: Raw | None
    target: Raw | None
    bests: tuple[tuple[Raw, Raw], ...]
    """The best records of the workload, each with the row of its target."""
    files: tuple[Raw, ...]
    """The artefacts of these records."""
    prepared: Raw | None
    """The preparation for the toolchain of the lookup, or None."""
    prepared_files: tuple[Raw, ...]
    claims: tuple[str, ...]
    """The keys of the fastest unverified claims."""
    checks: tuple[Raw, ...] = ()
    """The rows that `full_checks.refusing_rows` returns for the task."""

    def entry(self) -> WorkloadEntry | None:
        """Return the workload, or None if it is unknown or damaged."""
        return None if self.workload is None else workload_entry(as_row(_WORKLOAD, self.workload))

    def target_document(self) -> dict[str, Any] | None:
        """Return the description of the target, or None if it is unknown or damaged."""
        return None if self.target is None else target_document(as_row(_TARGET, self.target))

    def best(self) -> list[StoredBest]:
        """Return the intact best record on the target itself: a list of at most one element."""
        return list(self._stored(here=True))

    def elsewhere(self) -> list[StoredBest]:
        """Return the intact best records on other targets."""
        return list(self._stored(here=False))

    def _stored(self, *, here: bool) -> Iterator[StoredBest]:
        for row, made_for in self.bests:
            if (made_for[0] == self.work[1]) is not here:
                continue
            record, document = (
                from_row(as_row(_RECORD, row)),
                target_document(as_row(_TARGET, made_for)),
            )
            if record is not None and document is not None:
                yield StoredBest(row[0], record, document)

    def refusals(self, target_key: str) -> FullChecks:
        """Return the failed full checks of the workload's schedules on a target."""
        return checks_of(row for row in self.checks if row[_TARGET_AT] == target_key)

    def preparation(self) -> Prepared | None:
        """Return the preparation, or None if it is missing or damaged."""
        if self.prepared is None:
            return None
        row = as_row(_PREPARED, self.prepared)
        if not is_intact(row, PREPARATION):
            log.warning("preparation %s is damaged and not served", row.key)
            return None
        return Prepared(
            row.key,
            PreparationState(row.state),
            json.loads(row.document),
            tuple(prepared_files(as_row(_PREPARED_FILE, raw) for raw in self.prepared_files)),
            row.job_id,
        )

    def artefacts(self, record_key: str) -> list[Artefact]:
        """Return the artefacts of a record, as `Store.artefacts` does."""
        return artefacts_of(as_row(_FILE, raw) for raw in self.files if raw[0] == record_key)


class EvidenceStore(StorePart):
    """The methods of a store that read the rows on which answers depend."""

    def change_token(self) -> tuple[int, ...] | None:
        """Return a token that equals an earlier token only if no process committed in between, or
        None if that is unknown. The call takes microseconds and never waits."""
        return self._database.change_token()

    @reading
    def evidence(
        self,
        session: Session,
        works: Sequence[Work],
        *,
        toolchain: str = "",
        elsewhere: bool = False,
    ) -> dict[Work, StoredEvidence]:
        """Return the rows on which the answer for each (workload_key, target_key) depends, from one
        snapshot.

        With `elsewhere`, include the best records of the same workload on other targets; with
        `toolchain`, include the preparation of that toolchain, and claims.
        """
        found: dict[Work, StoredEvidence] = {}
        for part in _parts(list(dict.fromkeys(works))):
            found |= _evidence(session, part, toolchain, elsewhere=elsewhere)
        return found


def _evidence(
    session: Session, works: list[Work], toolchain: str, *, elsewhere: bool
) -> dict[Work, StoredEvidence]:
    workload_keys = list({workload for workload, _ in works})
    target_keys = list({target for _, target in works})
    workloads = _by_key(session, WorkloadRow, _WORKLOAD, workload_keys)
    targets = _by_key(session, TargetRow, _TARGET, target_keys)
    bests = _bests(session, works, workload_keys, elsewhere=elsewhere)
    files = _files(
        session, ArtefactRow, _FILE, [pair[0][0] for pairs in bests.values() for pair in pairs]
    )
    names = {work: preparation_key(*work, toolchain) for work in works} if toolchain else {}
    prepared = _by_key(session, PreparationRow, _PREPARED, list(names.values())) if names else {}
    built = _files(session, PreparedFileRow, _PREPARED_FILE, list(prepared))
    claims = _claims(session, works, MAX_CLAIMS) if toolchain else {}
    checks: dict[str, list[Raw]] = {}
    for row in refusing_rows(session, works, elsewhere=elsewhere):
        checks.setdefault(row[_WORKLOAD_AT], []).append(row)
    found = {}
    for work in works:
        mine = tuple(pair for pair in bests.get(work[0], ()) if elsewhere or pair[1][0] == work[1])
        name = names.get(work, "")
        found[work] = StoredEvidence(
            work,
            workloads.get(work[0]),
            targets.get(work[1]),
            mine,
            tuple(file for record, _ in mine for file in files.get(record[0], ())),
            prepared.get(name),
            tuple(built.get(name, ())),
            tuple(claims.get(work, ())),
            tuple(
                row for row in checks.get(work[0], ()) if elsewhere or row[_TARGET_AT] == work[1]
            ),
        )
    return found


def _bests(
    session: Session, works: list[Work], workload_keys: list[str], *, elsewhere: bool
) -> dict[str, list[tuple[Raw, Raw]]]:
    """Return the best records, each with its target, by workload key."""
    asked = (
        BestRow.workload_key.in_(workload_keys)
        if elsewhere
        else tuple_(BestRow.workload_key, BestRow.target_key).in_(works)
    )
    statement = (
        select(*_columns(RecordRow, _RECORD), *_columns(TargetRow, _TARGET))
        .select_from(BestRow)
        .join(RecordRow, text(IS_BEST))
        .join(TargetRow, TargetRow.key == RecordRow.target_key)
        .where(asked)
        .order_by(RecordRow.key)
    )
    found: dict[str, list[tuple[Raw, Raw]]] = {}
    for row in session.execute(statement):
        raw = tuple(row)
        record, made_for = raw[: len(_RECORD)], raw[len(_RECORD) :]
        found.setdefault(record[_WORKLOAD_AT], []).append((record, made_for))
    return found


def _claims(session: Session, works: list[Work], limit: int) -> dict[Work, list[str]]:
    """Return the keys of the `limit` fastest open claims of each task."""
    place = func.row_number().over(
        partition_by=(RecordRow.workload_key, RecordRow.target_key),
        order_by=(RecordRow.estimate_secs, RecordRow.id),
    )
    ranked = (
        select(RecordRow.workload_key, RecordRow.target_key, RecordRow.key, place.label("place"))
        .where(
            tuple_(RecordRow.workload_key, RecordRow.target_key).in_(works),
            text(IS_OPEN_CLAIM),
        )
        .subquery()
    )
    fastest = (
        select(ranked.c.workload_key, ranked.c.target_key, ranked.c.key)
        .where(ranked.c.place <= limit)
        .order_by(ranked.c.place)
    )
    found: dict[Work, list[str]] = {}
    for workload, target, key in session.execute(fastest):
        found.setdefault((workload, target), []).append(key)
    return found


def _by_key(
    session: Session, table: Any, names: tuple[str, ...], keys: list[str]
) -> dict[str, Raw]:
    statement = select(*_columns(table, names)).where(table.key.in_(keys))
    return {row[0]: tuple(row) for row in session.execute(statement)}


def _files(
    session: Session, table: Any, names: tuple[str, ...], owners: list[str]
) -> dict[str, list[Raw]]:
    """Return rows of files by their first column, the key of a record or preparation."""
    found: dict[str, list[Raw]] = {}
    columns = _columns(table, names)
    for keys in _parts(owners):
        statement = select(*columns).where(columns[0].in_(keys)).order_by(*columns[:2])
        for row in session.execute(statement):
            found.setdefault(row[0], []).append(tuple(row))
    return found


def _columns(table: Any, names: tuple[str, ...]) -> list[Column[Any]]:
    columns = table.__table__.c
    return [columns[name] for name in names]


def _parts(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), KEYS_PER_QUERY):
        yield items[start : start + KEYS_PER_QUERY]
