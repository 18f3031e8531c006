"""Reports and lists of the whole database, and what exports are selected by."""

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
    """How far a record has come; see `docs/database.md`."""

    BEST = "best"
    """Best of its work now."""
    VERIFIED = "verified"
    """Verified in full here, and not withdrawn."""
    OK = "ok"
    """Measured here, with a time."""
    FAILED = "failed"
    """Measured here, and without one."""
    IMPORTED = "imported"
    """A claim of others."""
    WITHDRAWN = "withdrawn"
    """Found wrong after it was stored."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which records to export; everything by default."""

    workload_key: str | None = None
    target_key: str | None = None
    state: RecordState | None = None


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that was not taken, and why. Lines count from 1."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did: records new here, records known already, and lines not taken."""

    added: int = 0
    known: int = 0
    bad: tuple[BadLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """A violated invariant or a damaged row. `kind` is stable; `subject` is the key or id
    concerned; `invariant` is the one of I1 to I7 that does not hold, "" where it is none of
    them."""

    kind: str
    subject: str
    detail: str
    invariant: str = ""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """What was deleted, or would be: how many of each, and the size of the blobs."""

    blobs: int = 0
    blob_bytes: int = 0
    workloads: int = 0
    targets: int = 0
    preparations: int = 0


@dataclass(frozen=True, slots=True)
class MoveReport:
    """What was copied: rows by table, the same on both sides and with the same content."""

    rows: dict[str, int]


# Statistics


@dataclass(frozen=True, slots=True)
class TableStats:
    """Rows of one table, the bytes of their values (without indices and the database's overhead),
    and the moment of the oldest; None where rows have no moment, or there are none."""

    rows: int
    bytes: int
    oldest: datetime | None


@dataclass(frozen=True, slots=True)
class KindStats:
    """How many there are of a kind, and their bytes."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class OwnerStats:
    """The rows of one owner: its jobs, of which `open_jobs` are not finished and not withdrawn
    from; the preparations it requested first, and the bytes of their files; its keys."""

    jobs: int = 0
    open_jobs: int = 0
    preparations: int = 0
    prepared_bytes: int = 0
    keys: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """`used_bytes` is `Store.used_bytes`, `disk_bytes` the size of the files. `blobs` are artefacts
    of records, files of preparations, of builds alone, and unreferenced; a blob is counted by the
    first of these that fits. `records` are by status, imported and withdrawn ones separately."""

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
    """A job as a list shows it. `workload` and `target` are the short descriptions."""

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
    """What is best for one workload on one target. `codegen_version` 0: timings are mocked."""

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
