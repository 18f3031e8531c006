"""`Store`: what everything else may rely on, whichever database is behind it.

This is the contract; `sql_store.py` keeps it, on SQLite and on PostgreSQL, and
`tests/contracts/store_contract.py` holds every implementation to it. Callers import `Store` and
`open_store` from `db` and nothing that is particular to one database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, TextIO

from .answer_store import AnswerStore
from .job_store import JobStore
from .key_store import KeyStore

if TYPE_CHECKING:
    from tilewright.schedules.full_checks import FullChecks
    from tilewright.schedules.record import Toolchain, TuningRecord

    from .answers import BestAnswer
    from .artefact_rows import Artefact
    from .artefacts import ArtefactFile
    from .best import BestElsewhere, BestMove
    from .blobs import Blob
    from .catalogue import Catalogue
    from .check import Inconsistency
    from .copying import MoveReport
    from .prune import PruneReport
    from .records import Page
    from .stats import Stats
    from .transfer import ImportReport, Selection
    from .works import WorkloadEntry


@dataclass(frozen=True, slots=True)
class Counts:
    """How much is stored."""

    records: int
    blobs: int


class Store(JobStore, AnswerStore, KeyStore, Protocol):
    """Everything known, durably. It satisfies the tuner's `RecordSink`.

    **Acknowledgement.** A call that returned has been committed to disk: it survives `kill -9`, a
    lost connection and power loss. A call that raised StoreError was not acknowledged; making it
    again is safe, since everything is named by its content, its key or its epoch.

    **One transaction a call.** What a call reads is one moment of the database; what it writes is
    all there or nothing. `import_`, which commits batch by batch, is the exception.

    **Threads and processes.** Any thread may call. A forked child must open a store of its own
    (RuntimeError otherwise). Any number of processes may have the database open; one of them at a
    time is its coordinator.

    **Damage.** Rows carry hashes and are checked when they are read. What is damaged is not there
    for whoever asks (None, or left out), a line goes to the log `tilewright.db`, `check` lists it,
    and storing the same again mends it where that is possible.

    **Errors.** StoreError: the database cannot be used, for now where `transient` (StoreBusy after
    `timeout_secs` of waiting, StoreFull, StoreUnreachable after some seconds of trying again). Any
    call may raise it. RefusedError: the database works, what was asked of it is not valid.
    """

    @property
    def name(self) -> str:
        """What to call the database where people read it: no user, no password."""
        ...

    @property
    def url(self) -> str:
        """Opens the same database again. It may hold a password: never show it."""
        ...

    @property
    def path(self) -> Path | None:
        """Its file, None if it is on a server."""
        ...

    @property
    def catalogue(self) -> Catalogue:
        """Questions of people who look around; none of them writes."""
        ...

    def close(self) -> None:
        """Give everything back: connections, and the coordinator's lock."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...

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
        """Make the work known that records will refer to. Again it changes nothing but probes: the
        first name stays. What was damaged is mended.

        KeyConflict if `workload_key` stands for another computation already; RefusedError for keys
        and flops that are none.
        """
        ...

    def workload(self, key: str) -> WorkloadEntry | None:
        """The workload of this key; None if it is unknown or damaged."""
        ...

    def target(self, key: str) -> dict[str, Any] | None:
        """The JSON description of a target; None if it is unknown or damaged."""
        ...

    # Records

    def add(self, records: Sequence[TuningRecord]) -> None:
        """Store records, all or none; those already there change nothing, whatever time of day they
        name. One without a time of day gets the store's. A failed full check that disproves its
        schedule withdraws the records of it that passed before.

        InvalidRecord: one contradicts itself. NotRegistered: call `register` first.
        """
        ...

    def records(
        self, workload_key: str, target_key: str, *, include_imported: bool = False
    ) -> list[TuningRecord]:
        """Every record of exactly this work, in the order of arrival.

        Imported ones are claims of others: they are left out unless asked for.
        """
        ...

    def record(self, key: str) -> TuningRecord | None:
        """The record of this key; None if it is unknown or damaged."""
        ...

    def records_page(
        self,
        page_token: str | None = None,
        page_size: int = 100,
        *,
        workload_key: str | None = None,
        target_key: str | None = None,
    ) -> Page[TuningRecord]:
        """All records in the order of arrival; `page_size` is cut to 1..1000. BadPageToken."""
        ...

    def counts(self, workload_key: str | None = None, target_key: str | None = None) -> Counts:
        """How many records (of this work, where given) and blobs there are."""
        ...

    # The best

    def promote(self, record: TuningRecord) -> bool:
        """Make a stored record the best of its work if it has reason to be; whether it is now.

        It takes a record verified in full and strictly faster than the best of the same
        generation of the toolchain; equal times leave the older. A newer generation takes over
        whatever its time, an older one never does; mocked timings are older than all real ones.
        See `best.reason_to_move`. It never takes one whose schedule failed a full check, see
        `full_checks`. NotRegistered if it was not added.
        """
        ...

    def withdraw(self, record_key: str, reason: str) -> TuningRecord | None:
        """Never serve this record again (it failed a later check); the best that is left."""
        ...

    def best(self, workload_key: str, target_key: str) -> TuningRecord | None:
        """The best record of exactly this work, None if there is none."""
        ...

    def best_many(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], TuningRecord]:
        """The best of each (workload_key, target_key) that has one."""
        ...

    def best_elsewhere(self, workload_key: str, target_key: str) -> list[BestElsewhere]:
        """The best of the same workload on every other target, fastest first."""
        ...

    def best_history(self, workload_key: str, target_key: str) -> list[BestMove]:
        """Every move of the best of this work, oldest first."""
        ...

    def best_answer(self, workload_key: str, target_key: str) -> BestAnswer:
        """All that an answer needs in one question: the best, its files, workload and target."""
        ...

    def best_answers(self, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], BestAnswer]:
        """`best_answer` of each of `keys`, in one question for all of them."""
        ...

    def full_checks(self, workload_key: str, target_key: str) -> FullChecks:
        """What full checks found of each schedule of this work: what failed, or was withdrawn, is
        handed out by nobody, whichever grade was asked for."""
        ...

    # Claims: what import brought

    def claims(self, workload_key: str, target_key: str) -> list[TuningRecord]:
        """The imported records of this work worth trying, fastest as they claim first.

        Those confirmed already and those withdrawn are left out.
        """
        ...

    def claims_waiting(self, limit: int = 100) -> list[TuningRecord]:
        """Of each work that has claims and no best, the claim to verify first."""
        ...

    def works_to_verify(self, toolchain: Toolchain) -> list[tuple[str, str]]:
        """Each (workload_key, target_key) that has no answer of `toolchain`, and records that may
        become one when they are verified: a best that another made, or claims and no best."""
        ...

    def confirm(self, claim_key: str, own: TuningRecord) -> bool:
        """Take `own`, the claim rebuilt, verified in full and timed here, as its confirmation;
        whether it is the best now.

        `own` is stored, and promoted like any other. NotRegistered: no such claim.
        InvalidRecord: `own` is of other work or another trace, or was not verified in full. A claim
        that turns out wrong is withdrawn with `withdraw`.
        """
        ...

    # Blobs and artefacts

    def put_blob(self, data: bytes, media_type: str) -> str:
        """Store bytes that a build asked for and give their sha256 (64 hex digits). BlobTooLarge
        above 4 MiB."""
        ...

    def blob(self, sha256: str) -> Blob | None:
        """The bytes of this name; None if missing or damaged (then `put_blob` mends them)."""
        ...

    def add_artefacts(self, record_key: str, files: Sequence[ArtefactFile]) -> list[Artefact]:
        """Keep the files a stored record was built into, all or none; those it has now.

        The first ones stay. NotRegistered: the record is not stored. BlobTooLarge.
        """
        ...

    def artefacts(self, record_key: str) -> list[Artefact]:
        """The files of a record, by kind; empty if none were kept."""
        ...

    def artefacts_many(self, record_keys: Sequence[str]) -> dict[str, list[Artefact]]:
        """The files of each record that has some."""
        ...

    # Whole database

    def export(self, out: TextIO, selection: Selection | None = None) -> int:
        """Write records as JSON lines (see `transfer`); how many."""
        ...

    def import_(self, lines: Iterable[str]) -> ImportReport:
        """Take in an export. Bad lines are reported, the others kept; again it adds nothing.

        InvalidRecord if the first line is not the header of a format this version reads.
        """
        ...

    def check(self, acknowledged: Iterable[str] = ()) -> list[Inconsistency]:
        """Every inconsistency found in the whole database; empty if it is sound.

        `acknowledged` are keys of records that somebody was told are stored: each has to be there.
        """
        ...

    def ping(self) -> None:
        """StoreError if the database cannot be read now, or is not the one that was opened."""
        ...

    def backup(self, file: Path) -> None:
        """A consistent copy in `file`, a SQLite database whatever this one is, for its owner only;
        everything goes on meanwhile. StoreDenied if `file` is there already, StoreFull."""
        ...

    def prune(
        self, *, dry_run: bool = False, min_age_secs: float = 86_400.0, built: bool = False
    ) -> PruneReport:
        """Delete what nobody points to and is older than `min_age_secs`; what it was.

        Preparations, which are made again when somebody asks, with their files; workloads and
        targets without records; with `built` also blobs that only builds asked for: lock files may
        name them. With `dry_run` nothing is deleted.
        """
        ...

    def make_room(self, need_bytes: int) -> PruneReport:
        """Delete what can be made again, the oldest first, until its files are `need_bytes` or
        nothing is left: preparations, then files that only builds asked for."""
        ...

    def used_bytes(self) -> int:
        """How much the database holds: what is free inside of its file is not counted."""
        ...

    def stats(self) -> Stats:
        """How much is stored of each kind, since when, and for whom."""
        ...

    def move_to(self, other: Store) -> MoveReport:
        """Copy everything into `other`, which holds nothing yet, in one transaction there; counts
        and hashes of both sides are compared before it is committed.

        StoreHeld while a service runs on either. StoreDenied if `other` is not empty. StoreBroken
        if the two do not agree.
        """
        ...

    def coordinate(self, *, blameless: bool = False) -> None:
        """Become the one coordinator of this database until `close`: StoreHeld names another.

        While there is one, only it leases jobs and does the upkeep, and nobody upgrades the schema.
        The leases of a former coordinator end at once: it is gone; `blameless` is that of
        `void_leases`.
        """
        ...

    def coordinates(self) -> bool:
        """Whether this store is the coordinator now: on a server, the lock ends with its
        connection. One that lost it stops working on jobs and calls `coordinate` again."""
        ...

    def checkpoint(self) -> bool:
        """Do the upkeep a database leaves to us; False if that is another process's task."""
        ...
