"""What is stored about a question, as raw rows: the same rows, the same answer.

A program that answers the same questions all day keeps what it made of the rows beside the rows
themselves. Nothing here was checked: who makes an answer of it asks for values, which are made of
sound rows only (`rows.sound`); who has made one compares rows byte by byte.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

from sqlalchemy import Column, and_, func, select, tuple_
from sqlalchemy.orm import Session

from tilewright.schedules.full_checks import FULL, FullChecks
from tilewright.schedules.record import TuningRecord

from .artefact_rows import HASHED as FILE
from .artefact_rows import Artefact, artefacts_of
from .full_checks import RECORD as _RECORD
from .full_checks import FullCheckRepository, Raw, checks_of
from .models import (
    ArtefactRow,
    BestRow,
    ConfirmationRow,
    PreparationRow,
    PreparedFileRow,
    RecordRow,
    TargetRow,
    WithdrawnRow,
    WorkloadRow,
)
from .preparations import FILE_HASHED as PREPARED_FILE
from .preparations import HASHED as PREPARED
from .preparations import (
    PreparationState,
    preparation_key,
    prepared_files,
    sound_preparation,
)
from .rows import IMPORTED, from_row
from .works import WorkloadEntry, target_document, workload_entry

log = logging.getLogger("tilewright.db")

Work: TypeAlias = tuple[str, str]
"""(workload_key, target_key)."""

KEYS_PER_QUERY = 400  # SQLite has a limit on parameters, and a work has two

_WORKLOAD = ("key", "name", "flops", "document", "row_sha256")
_TARGET = ("key", "document", "row_sha256")
_WORKLOAD_AT, _TARGET_AT = _RECORD.index("workload_key"), _RECORD.index("target_key")
_FILE = (*FILE, "row_sha256")
_PREPARED = (*PREPARED, "job_id", "row_sha256")
_PREPARED_FILE = (*PREPARED_FILE, "row_sha256")

MAX_CLAIMS = 3
"""How many of the fastest records of others are worth a check."""


@dataclass(frozen=True, slots=True)
class StoredBest:
    """A record that is best somewhere, under its key, and what it was made for."""

    key: str
    record: TuningRecord
    target_document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was found without tuning. `job_id` is the job that tunes the work, if there is one."""

    key: str
    state: PreparationState
    document: dict[str, Any]
    files: tuple[Artefact, ...]
    job_id: str | None

    @property
    def trace(self) -> list[Any] | None:
        """The schedule as JSON data, None before one is chosen."""
        trace: list[Any] | None = self.document.get("trace")
        return trace


@dataclass(frozen=True, slots=True)
class StoredEvidence:
    """Every row that an answer about one work rests on.

    `bests` are pairs of a record and what it was made for, `files` those of the records.
    `prepared` and its files are of the toolchain that was asked for. `claims` are the keys of the
    fastest records of others that nobody checked here. `checks` are the rows that speak against
    schedules, see `full_checks`.
    """

    work: Work
    workload: Raw | None
    target: Raw | None
    bests: tuple[tuple[Raw, Raw], ...]
    files: tuple[Raw, ...]
    prepared: Raw | None
    prepared_files: tuple[Raw, ...]
    claims: tuple[str, ...]
    checks: tuple[Raw, ...] = ()

    def entry(self) -> WorkloadEntry | None:
        """The workload; None if it is unknown or damaged."""
        return None if self.workload is None else workload_entry(_row(_WORKLOAD, self.workload))

    def target_document(self) -> dict[str, Any] | None:
        """The description of the target; None if it is unknown or damaged."""
        return None if self.target is None else target_document(_row(_TARGET, self.target))

    def best(self) -> list[StoredBest]:
        """The best on the target itself, if there is one and it is sound."""
        return list(self._stored(here=True))

    def elsewhere(self) -> list[StoredBest]:
        """The sound bests on other targets."""
        return list(self._stored(here=False))

    def _stored(self, *, here: bool) -> Iterator[StoredBest]:
        for row, made_for in self.bests:
            if (made_for[0] == self.work[1]) is not here:
                continue
            record, document = (
                from_row(_row(_RECORD, row)),
                target_document(_row(_TARGET, made_for)),
            )
            if record is not None and document is not None:
                yield StoredBest(row[0], record, document)

    def refusals(self, target_key: str) -> FullChecks:
        """What speaks against schedules of the workload on a target."""
        return checks_of(row for row in self.checks if row[_TARGET_AT] == target_key)

    def preparation(self) -> Prepared | None:
        """What was prepared; None if nothing was asked for, or the row is damaged."""
        if self.prepared is None:
            return None
        row = _row(_PREPARED, self.prepared)
        if not sound_preparation(row):
            log.warning("preparation %s is damaged and not served", row.key)
            return None
        return Prepared(
            row.key,
            PreparationState(row.state),
            json.loads(row.document),
            tuple(prepared_files(_row(_PREPARED_FILE, raw) for raw in self.prepared_files)),
            row.job_id,
        )

    def artefacts(self, record_key: str) -> list[Artefact]:
        """What `Store.artefacts` answers."""
        return artefacts_of(_row(_FILE, raw) for raw in self.files if raw[0] == record_key)


class EvidenceRepository:
    """Works in the session it is given."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of(
        self, works: Sequence[Work], toolchain: str, *, elsewhere: bool
    ) -> dict[Work, StoredEvidence]:
        """The evidence on each work; with `elsewhere`, on other targets too."""
        found: dict[Work, StoredEvidence] = {}
        for part in _parts(list(dict.fromkeys(works))):
            found |= self._some(part, toolchain, elsewhere=elsewhere)
        return found

    def _some(
        self, works: list[Work], toolchain: str, *, elsewhere: bool
    ) -> dict[Work, StoredEvidence]:
        workload_keys = list({workload for workload, _ in works})
        target_keys = list({target for _, target in works})
        workloads = self._by_key(WorkloadRow, _WORKLOAD, workload_keys)
        targets = self._by_key(TargetRow, _TARGET, target_keys)
        bests = self._bests(works, workload_keys, elsewhere=elsewhere)
        files = self._files(
            ArtefactRow, _FILE, [pair[0][0] for pairs in bests.values() for pair in pairs]
        )
        names = {work: preparation_key(*work, toolchain) for work in works} if toolchain else {}
        prepared = self._by_key(PreparationRow, _PREPARED, list(names.values())) if names else {}
        built = self._files(PreparedFileRow, _PREPARED_FILE, list(prepared))
        claims = self._claims(works, MAX_CLAIMS) if toolchain else {}
        checks: dict[str, list[Raw]] = {}
        for row in FullCheckRepository(self._session).refusing(works, elsewhere=elsewhere):
            checks.setdefault(row[_WORKLOAD_AT], []).append(row)
        found = {}
        for work in works:
            mine = tuple(
                pair for pair in bests.get(work[0], ()) if elsewhere or pair[1][0] == work[1]
            )
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
                    row
                    for row in checks.get(work[0], ())
                    if elsewhere or row[_TARGET_AT] == work[1]
                ),
            )
        return found

    def _bests(
        self, works: list[Work], workload_keys: list[str], *, elsewhere: bool
    ) -> dict[str, list[tuple[Raw, Raw]]]:
        """Records that are best and what they were made for, by workload."""
        asked = (
            BestRow.workload_key.in_(workload_keys)
            if elsewhere
            else tuple_(BestRow.workload_key, BestRow.target_key).in_(works)
        )
        served = and_(
            BestRow.record_key == RecordRow.key,
            BestRow.workload_key == RecordRow.workload_key,
            BestRow.target_key == RecordRow.target_key,
            RecordRow.status == "ok",
            RecordRow.verified_level == FULL,
        )
        statement = (
            select(*_columns(RecordRow, _RECORD), *_columns(TargetRow, _TARGET))
            .join(BestRow, served)
            .join(TargetRow, TargetRow.key == RecordRow.target_key)
            .where(asked)
            .order_by(RecordRow.key)
        )
        found: dict[str, list[tuple[Raw, Raw]]] = {}
        for row in self._session.execute(statement):
            raw = tuple(row)
            record, made_for = raw[: len(_RECORD)], raw[len(_RECORD) :]
            found.setdefault(record[_WORKLOAD_AT], []).append((record, made_for))
        return found

    def _claims(self, works: list[Work], limit: int) -> dict[Work, list[str]]:
        """Keys of the fastest `limit` claims of each work, as `ClaimRepository` has them."""
        place = func.row_number().over(
            partition_by=(RecordRow.workload_key, RecordRow.target_key),
            order_by=(RecordRow.estimate_secs, RecordRow.id),
        )
        ranked = (
            select(
                RecordRow.workload_key, RecordRow.target_key, RecordRow.key, place.label("place")
            )
            .where(
                tuple_(RecordRow.workload_key, RecordRow.target_key).in_(works),
                RecordRow.verified_level == IMPORTED,
                RecordRow.status == "ok",
                RecordRow.key.not_in(select(WithdrawnRow.record_key)),
                RecordRow.key.not_in(select(ConfirmationRow.claim_key)),
            )
            .subquery()
        )
        fastest = (
            select(ranked.c.workload_key, ranked.c.target_key, ranked.c.key)
            .where(ranked.c.place <= limit)
            .order_by(ranked.c.place)
        )
        found: dict[Work, list[str]] = {}
        for workload, target, key in self._session.execute(fastest):
            found.setdefault((workload, target), []).append(key)
        return found

    def _by_key(self, table: Any, names: tuple[str, ...], keys: list[str]) -> dict[str, Raw]:
        statement = select(*_columns(table, names)).where(table.key.in_(keys))
        return {row[0]: tuple(row) for row in self._session.execute(statement)}

    def _files(self, table: Any, names: tuple[str, ...], owners: list[str]) -> dict[str, list[Raw]]:
        """Rows of files by the first column, which names what they belong to."""
        found: dict[str, list[Raw]] = {}
        columns = _columns(table, names)
        for keys in _parts(owners):
            statement = select(*columns).where(columns[0].in_(keys)).order_by(*columns[:2])
            for row in self._session.execute(statement):
                found.setdefault(row[0], []).append(tuple(row))
        return found


def _columns(table: Any, names: tuple[str, ...]) -> list[Column[Any]]:
    columns = table.__table__.c
    return [columns[name] for name in names]


def _row(names: tuple[str, ...], raw: Raw) -> Any:
    """A raw row under the names that the checks read."""
    return cast(Any, SimpleNamespace(**dict(zip(names, raw, strict=True))))


def _parts(items: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), KEYS_PER_QUERY):
        yield items[start : start + KEYS_PER_QUERY]
