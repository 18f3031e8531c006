"""Reports and lists of the whole database, and the selection of an export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from .job_states import JobState

FORMAT = "tilewright-records"
"""The name of the exchange format of records, in the first line of every export."""

FORMAT_VERSION = 1


class RecordState(StrEnum):
    """The state of a record; see `docs/database.md`."""

    BEST = "best"
    """The best of its task now."""
    VERIFIED = "verified"
    """Verified in full here, and not withdrawn."""
    OK = "ok"
    """Measured here, with a time."""
    FAILED = "failed"
    """Measured here, without a valid time."""
    IMPORTED = "imported"
    """A claim of another machine."""
    WITHDRAWN = "withdrawn"
    """Proven wrong after it was stored."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The records to export; all by default."""

    workload_key: str | None = None
    target_key: str | None = None
    state: RecordState | None = None


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that was not imported, and the reason. Lines count from 1."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import: the numbers of new and of known records, and the lines not
    imported."""

    added: int = 0
    known: int = 0
    bad: tuple[BadLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """A violated invariant or a damaged row. `kind` is stable; `subject` is the key or id
    concerned; `invariant` is the violated one of I1 to I7, or ""."""

    kind: str
    subject: str
    detail: str
    invariant: str = ""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The deleted rows, or the rows a dry run would delete: the number of each kind, and the size
    of the blobs."""

    blobs: int = 0
    blob_bytes: int = 0
    workloads: int = 0
    targets: int = 0
    preparations: int = 0


@dataclass(frozen=True, slots=True)
class MoveReport:
    """The copied rows by table, equal in number and content on both sides."""

    rows: dict[str, int]


# Statistics


@dataclass(frozen=True, slots=True)
class TableStats:
    """The rows of one table, the bytes of their values (without indices and the database's
    overhead), and the time of the oldest; None if rows have no time, or there are none."""

    rows: int
    bytes: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class KindStats:
    """The number of items of a kind, and their bytes."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class OwnerStats:
    """The rows of one owner: its jobs (`open_jobs` are neither finished nor withdrawn from), the
    preparations it requested first, the bytes of their files, and its keys."""

    jobs: int = 0
    open_jobs: int = 0
    preparations: int = 0
    prepared_bytes: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of the whole database. `used_bytes` is `Store.used_bytes`, `disk_bytes` the size
    of the files. `blobs` are counted as artefacts of records, files of preparations, files of
    builds alone, or unreferenced: the first that applies. `records` are by status, imported and
    withdrawn ones separately."""

    used_bytes: int
    disk_bytes: int
    tables: Mapping[str, TableStats]
    blobs: Mapping[str, KindStats]
    records: Mapping[str, int]
    jobs: Mapping[str, int]
    preparations: Mapping[str, int]
    owners: Mapping[str, OwnerStats]


# Lists of jobs, bests and trials


@dataclass(frozen=True, slots=True)
class JobLine:
    """A job in a list. `workload` and `target` are the short descriptions."""

    id: str
    state: JobState
    workload: dict[str, Any]
    target: dict[str, Any]
    threads: int
    trials: int
    measurer: str
    progress: dict[str, Any]
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class KnownBest:
    """The best record of one workload on one target. `codegen_version` 0: timings are mocked."""

    workload_key: str
    name: str
    flops: int
    target_key: str
    target: dict[str, Any]
    record_key: str
    run_secs: float
    codegen_version: int
    llvmlite: str
    moved_at: datetime


@dataclass(frozen=True, slots=True)
class TrialLine:
    """One trial of a job. `run_secs` is None unless `status` is ok."""

    trial: int
    record_key: str
    status: str
    run_secs: float | None
    verified_level: str
