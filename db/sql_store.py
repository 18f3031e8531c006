"""`SqlStore`: the contract of `store.py` kept on a SQL database, whichever of the two."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Self, TextIO

from sqlalchemy.orm import Session

from tilewright.schedules.full_checks import FullChecks
from tilewright.schedules.record import Toolchain, TuningRecord

from .answers import AnswerReader, BestAnswer
from .artefact_rows import Artefact
from .artefacts import ArtefactFile, ArtefactRepository
from .best import BestElsewhere, BestMove, BestRepository
from .blobs import Blob, BlobRepository
from .catalogue import Catalogue
from .changes import ChangeCounter
from .check import Inconsistency, problems
from .claims import ClaimRepository
from .copying import MoveReport, move
from .engine import Database
from .errors import StoreDenied
from .full_checks import FullCheckRepository
from .prune import PruneReport, make_room, prune
from .records import Page, RecordRepository
from .sql_answers import SqlAnswers
from .sql_jobs import SqlJobs
from .sql_keys import SqlKeys
from .stats import Stats, stats
from .store import Counts, Store
from .transfer import LINES_PER_COMMIT, Importer, ImportReport, Selection, export_records
from .works import WorkloadEntry, WorkRepository

Clock = Callable[[], datetime]


def utc_now() -> datetime:
    """The time of day, for a store that is given no other clock."""
    return datetime.now(UTC)


class SqlStore(SqlJobs, SqlAnswers, SqlKeys):
    """See `Store`. `clock` gives moments, which nothing depends on; leases go by `lease_clock`, in
    seconds, where that is given, else by the database's."""

    def __init__(
        self,
        database: Database,
        *,
        clock: Clock = utc_now,
        lease_clock: Callable[[], float] | None = None,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._database = database
        self._clock = clock
        self._lease_clock = lease_clock
        self._entropy = entropy
        self._answers = AnswerReader(database)
        self._changes = None if database.path is None else ChangeCounter(database.path)
        self.catalogue = Catalogue(database)

    @property
    def name(self) -> str:
        return self._database.name

    @property
    def url(self) -> str:
        return self._database.url

    @property
    def path(self) -> Path | None:
        return self._database.path

    def close(self) -> None:
        if self._changes is not None:
            self._changes.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Workloads and targets

    def register(
        self,
        workload_key: str,
        workload_document: dict[str, Any],
        name: str,
        flops: int,
        target_key: str,
        target_document: dict[str, Any],
    ) -> None:
        now = self._clock()

        def work(session: Session) -> None:
            works = WorkRepository(session)
            works.register_workload(workload_key, workload_document, name, flops, now)
            works.register_target(target_key, target_document, now)

        self._database.write(work)

    def workload(self, key: str) -> WorkloadEntry | None:
        return self._database.read(lambda session: WorkRepository(session).workload(key))

    def target(self, key: str) -> dict[str, Any] | None:
        return self._database.read(lambda session: WorkRepository(session).target(key))

    # Records

    def add(self, records: Sequence[TuningRecord]) -> None:
        now = self._clock()

        def work(session: Session) -> None:
            RecordRepository(session).add(records, now)
            BestRepository(session).withdraw_disproved(records, now)

        self._database.write(work)
        self._database.tend()

    def records(
        self, workload_key: str, target_key: str, *, include_imported: bool = False
    ) -> list[TuningRecord]:
        return self._database.read(
            lambda session: RecordRepository(session).of_work(
                workload_key, target_key, include_imported=include_imported
            )
        )

    def record(self, key: str) -> TuningRecord | None:
        return self._database.read(lambda session: RecordRepository(session).get(key))

    def records_page(
        self,
        page_token: str | None = None,
        page_size: int = 100,
        *,
        workload_key: str | None = None,
        target_key: str | None = None,
    ) -> Page[TuningRecord]:
        return self._database.read(
            lambda session: RecordRepository(session).page(
                page_token, page_size, workload_key, target_key
            )
        )

    def counts(self, workload_key: str | None = None, target_key: str | None = None) -> Counts:
        def work(session: Session) -> Counts:
            records = RecordRepository(session).count(workload_key, target_key)
            return Counts(records, BlobRepository(session).count())

        return self._database.read(work)

    # The best

    def promote(self, record: TuningRecord) -> bool:
        key, now = record.key, self._clock()
        return self._database.write(lambda session: BestRepository(session).promote(key, now))

    def withdraw(self, record_key: str, reason: str) -> TuningRecord | None:
        now = self._clock()
        return self._database.write(
            lambda session: BestRepository(session).withdraw(record_key, reason, now)
        )

    def best(self, workload_key: str, target_key: str) -> TuningRecord | None:
        return self._database.read(
            lambda session: BestRepository(session).get(workload_key, target_key)
        )

    def best_many(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], TuningRecord]:
        return self._database.read(lambda session: BestRepository(session).get_many(keys))

    def best_elsewhere(self, workload_key: str, target_key: str) -> list[BestElsewhere]:
        return self._database.read(
            lambda session: BestRepository(session).elsewhere(workload_key, target_key)
        )

    def best_history(self, workload_key: str, target_key: str) -> list[BestMove]:
        return self._database.read(
            lambda session: BestRepository(session).history(workload_key, target_key)
        )

    def best_answer(self, workload_key: str, target_key: str) -> BestAnswer:
        key = workload_key, target_key
        return self._answers.answers([key])[key]

    def best_answers(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], BestAnswer]:
        return self._answers.answers(keys)

    def full_checks(self, workload_key: str, target_key: str) -> FullChecks:
        return self._database.read(
            lambda session: FullCheckRepository(session).of_work(workload_key, target_key)
        )

    # Claims

    def claims(self, workload_key: str, target_key: str) -> list[TuningRecord]:
        return self._database.read(
            lambda session: ClaimRepository(session).of_work(workload_key, target_key)
        )

    def claims_waiting(self, limit: int = 100) -> list[TuningRecord]:
        return self._database.read(lambda session: ClaimRepository(session).waiting(limit))

    def works_to_verify(self, toolchain: Toolchain) -> list[tuple[str, str]]:
        def work(session: Session) -> list[tuple[str, str]]:
            made_by_others = BestRepository(session).works_of_others(toolchain)
            return [*made_by_others, *ClaimRepository(session).works()]

        return self._database.read(work)

    def confirm(self, claim_key: str, own: TuningRecord) -> bool:
        now = self._clock()
        return self._database.write(
            lambda session: ClaimRepository(session).confirm(claim_key, own, now)
        )

    # Blobs and artefacts

    def put_blob(self, data: bytes, media_type: str) -> str:
        now = self._clock()

        def work(session: Session) -> str:
            self._database.serialise(session, "blobs")
            return BlobRepository(session).put(data, media_type, now, built=True)

        return self._database.write(work)

    def blob(self, sha256: str) -> Blob | None:
        return self._database.read(lambda session: BlobRepository(session).get(sha256))

    def add_artefacts(self, record_key: str, files: Sequence[ArtefactFile]) -> list[Artefact]:
        now = self._clock()

        def work(session: Session) -> list[Artefact]:
            self._database.serialise(session, "blobs")  # none is pruned before it is pointed to
            return ArtefactRepository(session).add(record_key, files, now)

        return self._database.write(work)

    def artefacts(self, record_key: str) -> list[Artefact]:
        return self._database.read(lambda session: ArtefactRepository(session).of(record_key))

    def artefacts_many(self, record_keys: Sequence[str]) -> dict[str, list[Artefact]]:
        return self._database.read(lambda session: ArtefactRepository(session).of_many(record_keys))

    def _lease_time(self, session: Session) -> float:
        given = self._lease_clock
        return self._database.lease_clock(session) if given is None else given()

    # Whole database

    def export(self, out: TextIO, selection: Selection | None = None) -> int:
        with self._database.reading() as session:
            return export_records(session, out, selection or Selection())

    def import_(self, lines: Iterable[str]) -> ImportReport:
        importer, source = Importer(), iter(lines)
        while batch := list(islice(source, LINES_PER_COMMIT)):
            importer = self._database.write(partial(importer.taking, batch, self._clock()))
            self._database.tend()
        return importer.report

    def check(self, acknowledged: Iterable[str] = ()) -> list[Inconsistency]:
        return problems(self._database, acknowledged)

    def ping(self) -> None:
        self._database.ping()

    def backup(self, file: Path) -> None:
        self._database.backup(file)

    def prune(
        self, *, dry_run: bool = False, min_age_secs: float = 86_400.0, built: bool = False
    ) -> PruneReport:
        now = self._clock()

        def work(session: Session) -> PruneReport:
            self._database.serialise(session, "blobs")
            with session.begin_nested() as undoable:
                report = prune(session, now, min_age_secs, built=built)
                if dry_run:
                    undoable.rollback()
            return report

        return self._database.write(work)

    def make_room(self, need_bytes: int) -> PruneReport:
        def work(session: Session) -> PruneReport:
            self._database.serialise(session, "blobs")
            return make_room(session, need_bytes)

        return self._database.write(work)

    def used_bytes(self) -> int:
        return self._database.read(self._database.used_bytes)

    def stats(self) -> Stats:
        return self._database.read(lambda session: stats(session, self._database))

    def move_to(self, other: Store) -> MoveReport:
        if not isinstance(other, SqlStore):
            raise StoreDenied(f"{other.name}: not a database that rows can be moved to")
        if self._database.url == other._database.url or _same_file(self.path, other.path):
            raise StoreDenied(f"database {self.name}: cannot be moved onto itself")
        return move(self._database, other._database)

    def coordinate(self, *, blameless: bool = False) -> None:
        lock = self._database.lock
        if lock.held:
            return
        lock.acquire(min(self._database.timeout_secs, 1.0), purpose=f"coordinate {self.name}")
        self.void_leases(blameless=blameless)

    def coordinates(self) -> bool:
        return self._database.lock.held

    def checkpoint(self) -> bool:
        return self._database.checkpoint()


def _same_file(one: Path | None, other: Path | None) -> bool:
    return one is not None and other is not None and one.samefile(other)
