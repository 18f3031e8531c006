"""Workloads and targets: the two documents every record refers to."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import or_, update
from sqlalchemy.orm import Session

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.target import Target

from .engine import insert_ignore
from .errors import KeyConflict, RefusedError
from .models import TargetRow, WorkloadRow
from .rows import row_hash

log = logging.getLogger("tilewright.db")


@dataclass(frozen=True, slots=True)
class WorkloadEntry:
    """A registered workload: `document` is its JSON, `flops` the useful operations of one call."""

    key: str
    name: str
    flops: int
    document: dict[str, Any]


class WorkRepository:
    """Queries on workloads and targets. Works in the session it is given; the caller commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def register_workload(
        self, key: str, document: dict[str, Any], name: str, flops: int, now: datetime
    ) -> None:
        """Keep the document of `key`. The first spelling of a computation and its name stay.

        KeyConflict if another is stored and `document` does not describe the computation of `key`.
        """
        if not 0 <= flops < 2**63:
            raise RefusedError(f"flops: must be in 0..2**63-1, got {flops}")
        if "\0" in name:
            raise RefusedError("name: must be text without NUL characters")
        text = canonical_bytes(document).decode()
        row = {"key": _checked_key(key), "name": name, "flops": flops, "document": text}
        row |= {"created_at": now, "row_sha256": row_hash([key, name, flops, text])}
        if insert_ignore(self._session, WorkloadRow, [row]):
            return
        known = self.workload(key)
        if known is None:  # there, but damaged: what we were just given mends it
            mended = update(WorkloadRow).where(WorkloadRow.key == key).values(row)
            self._session.execute(mended.execution_options(synchronize_session=False))
        elif known.document != document and workload_key_of(document) != key:
            raise KeyConflict(
                f"workload {key}: another computation is stored under this key; the one given "
                f"has the key {workload_key_of(document)}"
            )

    def register_target(self, key: str, document: dict[str, Any], now: datetime) -> None:
        """Keep the document of `key`; a later one replaces the probes, which the key leaves out.

        One that was not probed, as for mocked timings, replaces none.
        """
        text = canonical_bytes(document).decode()
        row: dict[str, Any] = {"key": _checked_key(key), "document": text, "created_at": now}
        row["row_sha256"] = row_hash([key, text])
        if insert_ignore(self._session, TargetRow, [row]):
            return
        if not _is_probed(document) and self.target(key) is not None:
            return
        renewed = update(TargetRow).where(
            TargetRow.key == key,
            or_(TargetRow.document != text, TargetRow.row_sha256 != row["row_sha256"]),
        )
        row.pop("created_at")
        self._session.execute(renewed.values(row).execution_options(synchronize_session=False))

    def workload(self, key: str) -> WorkloadEntry | None:
        """The workload of this key; None if it is unknown or damaged."""
        row = self._session.get(WorkloadRow, key)
        return None if row is None else workload_entry(row)

    def target(self, key: str) -> dict[str, Any] | None:
        """The document of the target of this key; None if it is unknown or damaged."""
        row = self._session.get(TargetRow, key)
        return None if row is None else target_document(row)


def _is_probed(document: dict[str, Any]) -> bool:
    return bool((document.get("probes") or {}).get("peak_gflops"))


def sound_workload(row: WorkloadRow) -> bool:
    """Whether the row is what was once written; if not, the log says so."""
    return _sound("workload", row.key, row.row_sha256, [row.key, row.name, row.flops, row.document])


def sound_target(row: TargetRow) -> bool:
    """Whether the row is what was once written; if not, the log says so."""
    return _sound("target", row.key, row.row_sha256, [row.key, row.document])


def workload_entry(row: WorkloadRow) -> WorkloadEntry | None:
    """The workload of a sound row, None of a damaged one."""
    if not sound_workload(row):
        return None
    return WorkloadEntry(row.key, row.name, row.flops, json.loads(row.document))


def target_document(row: TargetRow) -> dict[str, Any] | None:
    """The document of a sound row, None of a damaged one."""
    if not sound_target(row):
        return None
    document: dict[str, Any] = json.loads(row.document)
    return document


def workload_key_of(document: dict[str, Any]) -> str:
    """The key of the computation a document describes; WorkloadError if it describes none."""
    # Start-up: most questions to the store hold a key.
    from tilewright.schedules.workload.workload import Workload

    return Workload.from_json(document).key


def target_key_of(document: dict[str, Any]) -> str:
    """The key that a target document gives; TargetError if it is not one."""
    return Target.from_json(document).key


def _checked_key(key: str) -> str:
    if not 1 <= len(key) <= 80:
        raise RefusedError(f"key: must be text of 1..80 characters, got {key!r}")
    return key


def _sound(kind: str, key: str, expected: str, values: list[Any]) -> bool:
    try:
        found = row_hash(values)
    except (TypeError, ValueError):  # damage can turn a number into bytes
        found = ""
    if found != expected:
        log.warning("%s %s is damaged and not served; run `tilewright db check`", kind, key)
    return found == expected
