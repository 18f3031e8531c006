"""Reports and lists of the whole database, and the selection of an export."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Any

from tilewright.schedules.record import TuningRecord

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
    """The numbers of new and of already stored records, and the lines that were not imported."""

    added: int = 0
    known: int = 0
    bad: tuple[BadLine, ...] = ()


@dataclass(frozen=True, slots=True)
class Inconsistency:
    """A damaged row or a violated `invariant` (I1 to I7 of `db/whole/check.py`, otherwise "").
    Programs may compare `kind`; `subject` is the key or id of the row."""

    kind: str
    subject: str
    detail: str
    invariant: str = ""


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The numbers of rows that were deleted, or that a dry run would delete."""

    blobs: int = 0
    blob_bytes: int = 0
    workloads: int = 0
    targets: int = 0
    preparations: int = 0


@dataclass(frozen=True, slots=True)
class MoveReport:
    """The number of copied rows per table."""

    rows: dict[str, int]


@dataclass(frozen=True, slots=True)
class SlowerTask:
    """A task whose schedule became slower with a newer toolchain.

    `before` and `after` are passed full checks of the same trace, `target` describes the machine.
    `best_secs` is the time of the best record now, or None if there is none.
    """

    workload_key: str
    name: str
    target_key: str
    target: dict[str, Any]
    threads: int
    before: TuningRecord
    after: TuningRecord
    best_secs: float | None

    @property
    def ratio(self) -> float:
        """The time after the upgrade divided by the time before."""
        before, after = self.before.result, self.after.result
        return (after.run_secs_estimate or 0.0) / (before.run_secs_estimate or inf)


# Statistics


@dataclass(frozen=True, slots=True)
class TableStats:
    """Statistics of one table."""

    rows: int
    bytes: int
    """The bytes of the values, without indices and overhead."""
    oldest: datetime | None
    """The timestamp of the oldest row, or None."""


@dataclass(frozen=True, slots=True)
class KindStats:
    """The number of items of a kind, and their bytes."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class OwnerStats:
    """The amount of data that belongs to one owner."""

    jobs: int = 0
    open_jobs: int = 0
    """Jobs that are not finished and from which the owner has not withdrawn."""
    preparations: int = 0
    prepared_bytes: int = 0
    """The bytes of the files of the preparations."""
    keys: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """Statistics of the whole database."""

    used_bytes: int
    disk_bytes: int
    """The size of the database's files."""
    tables: Mapping[str, TableStats]
    blobs: Mapping[str, KindStats]
    """By kind. A blob counts in the first kind that applies: "artefact" of a record, "prepared",
    "built", "unreferenced"."""
    records: Mapping[str, int]
    """By status. "imported" and "withdrawn" records count separately."""
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
    """The best record of one task. `codegen_version` is 0 if timings are mocked."""

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
    workload_key: str
