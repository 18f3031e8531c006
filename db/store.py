"""`Store`: the one object through which everything else reads and writes what is known."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Self, TextIO

from schedules.record import TuningRecord

from .answer_store import AnswerStore
from .artefact_rows import Artefact
from .artefacts import ArtefactFile, ArtefactRepository
from .best import BestElsewhere, BestMove, BestRepository
from .blobs import Blob, BlobRepository
from .catalogue import Catalogue
from .check import Problem, problems
from .checkpoint import CHECKPOINT_BYTES, checkpoint, log_bytes
from .engine import Database
from .errors import StoreDenied, StoreMissing
from .job_store import Clock, utc_now
from .key_store import KeyStore
from .location import default_url, file_is_there, sqlite_path
from .locks import FileLock
from .records import Page, RecordRepository
from .schema import HEAD, refuse_older
from .transfer import LINES_PER_COMMIT, Importer, ImportReport, Selection, export_records
from .upgrade import read_revision
from .upgrade import upgrade as upgrade_schema
from .works import WorkloadEntry, WorkRepository

TIMEOUT_SECS = 30.0


@dataclass(frozen=True, slots=True)
class Counts:
    """How much is stored."""

    records: int
    blobs: int


def open_store(
    url: str | None = None,
    *,
    create: bool = True,
    upgrade: bool = True,
    timeout_secs: float = TIMEOUT_SECS,
    clock: Clock = utc_now,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Store:
    """The store at `url` (`sqlite:///FILE` or a path; `default_url()` for None).

    With `create`, a missing file is made; with `upgrade`, an older schema is brought up to date.
    `timeout_secs` is how long any call waits for another process.

    StoreMissing, StoreOlder: what `create` or `upgrade` would have mended. StoreDenied: no file
    this process may open or write. StoreNewer: made by a
    newer version. StoreBroken: not a database of ours. StoreHeld: locked for too long.
    """
    path = sqlite_path(url or default_url())
    if not file_is_there(path):
        if not create:
            raise StoreMissing(
                f"database {path}: there is none; `tilewright tune` makes it, --db names another"
            )
        _make_folder(path.parent)
    database = Database(path, timeout_secs=timeout_secs)
    lock = FileLock(path)
    try:
        _prepare(database, lock, may_upgrade=upgrade, timeout_secs=timeout_secs)
    except BaseException:
        database.close()
        raise
    return Store(database, lock, clock, entropy, timeout_secs)


class Store(AnswerStore, KeyStore):
    """Everything known, durably. Safe to call from any thread; each call is one transaction.

    A call that returned has been written to disk: it survives `kill -9` and power loss. Any call
    may raise StoreHeld or StoreBroken. It satisfies the tuner's `RecordSink`. A forked child must
    open a store of its own.
    """

    def __init__(
        self,
        database: Database,
        lock: FileLock,
        clock: Clock,
        entropy: Callable[[int], bytes],
        timeout_secs: float,
    ) -> None:
        super().__init__(database, clock, entropy)
        self._lock = lock
        self._timeout_secs = timeout_secs
        self.catalogue = Catalogue(database)

    @property
    def path(self) -> Path:
        return self._database.path

    def close(self) -> None:
        """Close every connection; the last one of all processes folds the log into the file."""
        self._lock.release()
        self._changes.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Workloads and targets

    def register(  # two documents, each with its key
        self,
        workload_key: str,
        workload_document: dict[str, Any],
        name: str,
        flops: int,
        target_key: str,
        target_document: dict[str, Any],
    ) -> None:
        """Make the work known that records will refer to. Again it changes nothing but probes.

        KeyConflict if `workload_key` stands for another computation already.
        """
        with self._database.writing() as session:
            works, now = WorkRepository(session), self._clock()
            works.register_workload(workload_key, workload_document, name, flops, now)
            works.register_target(target_key, target_document, now)

    def workload(self, key: str) -> WorkloadEntry | None:
        with self._database.reading() as session:
            return WorkRepository(session).workload(key)

    def target(self, key: str) -> dict[str, Any] | None:
        """The JSON description of a target."""
        with self._database.reading() as session:
            return WorkRepository(session).target(key)

    # Records

    def add(self, records: Sequence[TuningRecord]) -> None:
        """Store records, all or none; those already there change nothing.

        InvalidRecord: one contradicts itself. NotRegistered: call `register` first.
        """
        with self._database.writing() as session:
            RecordRepository(session).add(records, self._clock())
        if log_bytes(self.path) > CHECKPOINT_BYTES:
            self.checkpoint()

    def records(
        self, workload_key: str, target_key: str, *, include_imported: bool = False
    ) -> list[TuningRecord]:
        """Every record of exactly this work, in the order of arrival.

        Imported ones are claims of others: they are left out unless asked for.
        """
        with self._database.reading() as session:
            repository = RecordRepository(session)
            return repository.of_work(workload_key, target_key, include_imported=include_imported)

    def record(self, key: str) -> TuningRecord | None:
        with self._database.reading() as session:
            return RecordRepository(session).get(key)

    def records_page(
        self,
        page_token: str | None = None,
        page_size: int = 100,
        *,
        workload_key: str | None = None,
        target_key: str | None = None,
    ) -> Page[TuningRecord]:
        """All records in the order of arrival; `page_size` is cut to 1..1000. BadPageToken."""
        with self._database.reading() as session:
            repository = RecordRepository(session)
            return repository.page(page_token, page_size, workload_key, target_key)

    def counts(self, workload_key: str | None = None, target_key: str | None = None) -> Counts:
        """How many records (of this work, where given) and blobs there are."""
        with self._database.reading() as session:
            records = RecordRepository(session).count(workload_key, target_key)
            return Counts(records, BlobRepository(session).count())

    # The best

    def promote(self, record: TuningRecord) -> bool:
        """Make a stored record the best of its work if it has reason to be; whether it is now.

        It takes a record verified in full and strictly faster than the best of the same
        toolchain generation; see `best.reason_to_move`. NotRegistered if it was not added.
        """
        with self._database.writing() as session:
            return BestRepository(session).promote(record.key, self._clock())

    def withdraw(self, record_key: str, reason: str) -> TuningRecord | None:
        """Never serve this record again (it failed a later check); the best that is left."""
        with self._database.writing() as session:
            return BestRepository(session).withdraw(record_key, reason, self._clock())

    def best(self, workload_key: str, target_key: str) -> TuningRecord | None:
        """The best record of exactly this work, None if there is none."""
        with self._database.reading() as session:
            return BestRepository(session).get(workload_key, target_key)

    def best_many(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], TuningRecord]:
        """The best of each (workload_key, target_key) that has one."""
        with self._database.reading() as session:
            return BestRepository(session).get_many(keys)

    def best_elsewhere(self, workload_key: str, target_key: str) -> list[BestElsewhere]:
        """The best of the same workload on every other target, fastest first."""
        with self._database.reading() as session:
            return BestRepository(session).elsewhere(workload_key, target_key)

    def best_history(self, workload_key: str, target_key: str) -> list[BestMove]:
        """Every move of the best of this work, oldest first."""
        with self._database.reading() as session:
            return BestRepository(session).history(workload_key, target_key)

    # Blobs

    def put_blob(self, data: bytes, media_type: str) -> str:
        """Store bytes and give their sha256 (64 hex digits). BlobTooLarge above 4 MiB."""
        with self._database.writing() as session:
            return BlobRepository(session).put(data, media_type, self._clock())

    def blob(self, sha256: str) -> Blob | None:
        """The bytes of this name; None if missing or damaged (then `put_blob` mends them)."""
        with self._database.reading() as session:
            return BlobRepository(session).get(sha256)

    # Artefacts

    def add_artefacts(self, record_key: str, files: Sequence[ArtefactFile]) -> list[Artefact]:
        """Keep the files a stored record was built into, all or none; those it has now.

        The first ones stay. NotRegistered: the record is not stored. BlobTooLarge.
        """
        with self._database.writing() as session:
            return ArtefactRepository(session).add(record_key, files, self._clock())

    def artefacts(self, record_key: str) -> list[Artefact]:
        """The files of a record, by kind; empty if none were kept."""
        with self._database.reading() as session:
            return ArtefactRepository(session).of(record_key)

    def artefacts_many(self, record_keys: Sequence[str]) -> dict[str, list[Artefact]]:
        """The files of each record that has some."""
        with self._database.reading() as session:
            return ArtefactRepository(session).of_many(record_keys)

    # Whole database

    def export(self, out: TextIO, selection: Selection | None = None) -> int:
        """Write records as JSON lines (see `transfer`); how many."""
        with self._database.reading() as session:
            return export_records(session, out, selection or Selection())

    def import_(self, lines: Iterable[str]) -> ImportReport:
        """Take in an export. Bad lines are reported, the others kept; again it adds nothing.

        InvalidRecord if the first line is not the header of a format this version reads.
        """
        importer, source = Importer(), iter(lines)
        while batch := list(islice(source, LINES_PER_COMMIT)):
            with self._database.writing() as session:
                importer.take(session, batch, self._clock())
        return importer.report

    def check(self) -> list[Problem]:
        """Every inconsistency found in the whole database; empty if it is sound."""
        return problems(self._database)

    def coordinate(self) -> None:
        """Become the one coordinator of this database until `close`: StoreHeld names another.

        While there is one, only it checkpoints and nobody upgrades the schema.
        """
        self._lock.acquire(min(self._timeout_secs, 1.0), purpose=f"coordinate {self.path}")

    def checkpoint(self) -> bool:
        """Fold the write-ahead log into the file; False if that is another process's task."""
        return checkpoint(self._database, self._lock)


def _prepare(database: Database, lock: FileLock, *, may_upgrade: bool, timeout_secs: float) -> None:
    revision = read_revision(database)
    if revision == HEAD:
        return
    if not may_upgrade:
        refuse_older(database.path, revision)
    upgrade_schema(database, lock, timeout_secs=timeout_secs)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreDenied(f"database folder {folder}: cannot be made ({error})") from error
