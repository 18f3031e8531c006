"""What is stored about a question, as raw rows: the same rows, the same answer.

A program that answers the same questions all day keeps what it made of the rows beside the rows
themselves. Nothing here was checked: who makes an answer of it asks for values, which are made of
sound rows only (`rows.sound`); who has made one compares rows byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

from sqlalchemy import Column, and_, select, tuple_
from sqlalchemy.orm import Session

from schedules.record import TuningRecord

from .artefact_rows import HASHED as FILE
from .artefact_rows import Artefact, artefacts_of
from .best import FULL
from .models import ArtefactRow, BestRow, RecordRow, TargetRow, WorkloadRow
from .rows import HASHED, from_row
from .works import WorkloadEntry, target_document, workload_entry

Work: TypeAlias = tuple[str, str]
"""(workload_key, target_key)."""
Raw: TypeAlias = tuple[Any, ...]

KEYS_PER_QUERY = 400  # SQLite has a limit on parameters, and a work has two

_WORKLOAD = ("key", "name", "flops", "document", "row_sha256")
_TARGET = ("key", "document", "row_sha256")
_RECORD = (*HASHED, "row_sha256")
_FILE = (*FILE, "row_sha256")


@dataclass(frozen=True, slots=True)
class StoredBest:
    """A record that is best somewhere, under its key, and what it was made for."""

    key: str
    record: TuningRecord
    target_document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Evidence:
    """Every row that an answer about one work rests on; `bests` are pairs of a record and what it
    was made for, `files` of those records."""

    work: Work
    workload: Raw | None
    target: Raw | None
    bests: tuple[tuple[Raw, Raw], ...]
    files: tuple[Raw, ...]

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
            record, document = from_row(_row(_RECORD, row)), target_document(_row(_TARGET, made_for))
            if record is not None and document is not None:
                yield StoredBest(row[0], record, document)

    def artefacts(self, record_key: str) -> list[Artefact]:
        """What `Store.artefacts` answers."""
        return artefacts_of(_row(_FILE, raw) for raw in self.files if raw[0] == record_key)


class EvidenceRepository:
    """Works in the session it is given."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of(self, works: Sequence[Work], *, elsewhere: bool) -> dict[Work, Evidence]:
        """The evidence on each work; with `elsewhere`, on other targets too."""
        found: dict[Work, Evidence] = {}
        for part in _parts(list(dict.fromkeys(works))):
            found |= self._some(part, elsewhere=elsewhere)
        return found

    def _some(self, works: list[Work], *, elsewhere: bool) -> dict[Work, Evidence]:
        workload_keys = list({workload for workload, _ in works})
        target_keys = list({target for _, target in works})
        workloads = self._by_key(WorkloadRow, _WORKLOAD, workload_keys)
        targets = self._by_key(TargetRow, _TARGET, target_keys)
        bests: dict[str, list[tuple[Raw, Raw]]] = {}
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
        workload_at = _RECORD.index("workload_key")
        for row in self._session.execute(statement):
            raw = tuple(row)
            record, made_for = raw[: len(_RECORD)], raw[len(_RECORD) :]
            bests.setdefault(record[workload_at], []).append((record, made_for))
        files = self._files([pair[0][0] for pairs in bests.values() for pair in pairs])
        return {
            (workload, target): self._one(
                (workload, target), workloads, targets, bests.get(workload, []), files, elsewhere
            )
            for workload, target in works
        }

    def _one(
        self,
        work: Work,
        workloads: dict[str, Raw],
        targets: dict[str, Raw],
        bests: Iterable[tuple[Raw, Raw]],
        files: dict[str, list[Raw]],
        elsewhere: bool,
    ) -> Evidence:
        mine = tuple(pair for pair in bests if elsewhere or pair[1][0] == work[1])
        return Evidence(
            work,
            workloads.get(work[0]),
            targets.get(work[1]),
            mine,
            tuple(file for record, _ in mine for file in files.get(record[0], ())),
        )

    def _by_key(self, table: Any, names: tuple[str, ...], keys: list[str]) -> dict[str, Raw]:
        statement = select(*_columns(table, names)).where(table.key.in_(keys))
        return {row[0]: tuple(row) for row in self._session.execute(statement)}

    def _files(self, record_keys: list[str]) -> dict[str, list[Raw]]:
        found: dict[str, list[Raw]] = {}
        for keys in _parts(record_keys):
            statement = (
                select(*_columns(ArtefactRow, _FILE))
                .where(ArtefactRow.record_key.in_(keys))
                .order_by(ArtefactRow.record_key, ArtefactRow.kind)
            )
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
