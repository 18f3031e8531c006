"""Values of workloads, records and files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from tilewright.schedules.record import TuningRecord

Work: TypeAlias = tuple[str, str]
"""(workload_key, target_key)."""

IMPORTED = "imported"
"""The `verified_level` of an imported record: a claim of another machine."""

MAX_COMPARED = 256
"""Number of workloads of one structure, the newest ones, whose distances are computed."""

MAX_RECORDS = 256
"""Number of records per related workload, the fastest ones."""


EXPLANATION = "explanation"
"""The kind of the only file of a record that may be replaced: the latest result of `explain`."""


@dataclass(frozen=True, slots=True)
class WorkloadEntry:
    """A registered workload: `document` is its JSON, `flops` the useful operations per call."""

    key: str
    name: str
    flops: int
    document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of stored rows."""

    records: int
    blobs: int


@dataclass(frozen=True, slots=True)
class BestMove:
    """One move of a best pointer. `to_record_key` is None if no record was left to be best."""

    version: int
    from_record_key: str | None
    to_record_key: str | None
    reason: str
    moved_at: datetime


@dataclass(frozen=True, slots=True)
class BestElsewhere:
    """The best of the same workload on another target."""

    record: TuningRecord
    target_document: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Blob:
    """Stored bytes and their media type; `sha256` is 64 hex digits."""

    sha256: str
    media_type: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Artefact:
    """A stored file of a record. `kind` is "object", "header", "llvm" or EXPLANATION; `sha256`
    names the blob."""

    kind: str
    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ArtefactFile:
    """A file to store: its kind, its name, its media type and its bytes."""

    kind: str
    name: str
    media_type: str
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()
