"""Workloads and targets. Every record refers to one of each."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Any

from sqlalchemy import or_, update
from sqlalchemy.orm import Session

from tilewright.schedules.canonical import canonical_bytes
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.target import Target
from tilewright.schedules.workload.structure import structure_of
from tilewright.schedules.workload.workload import Workload

from ..core.engine import insert_ignore
from ..core.hashes import TARGET, WORKLOAD, is_intact, row_hash
from ..core.models import TargetRow, WorkloadRow
from ..core.parts import StorePart, reading, writing
from ..errors import KeyConflict, RefusedError
from ..values.records import WorkloadEntry

log = logging.getLogger("tilewright.db")


class WorkStore(StorePart):
    """The methods of a store that read and write workloads and targets."""

    @writing
    def register(
        self,
        session: Session,
        workload_key: str,
        workload_document: dict[str, Any],
        name: str,
        flops: int,
        target_key: str,
        target_document: dict[str, Any],
    ) -> None:
        """Store the workload and the target to which records will refer. A repeated call changes
        only the target's probes, and repairs damaged rows.

        Raise KeyConflict if another computation is stored under `workload_key`, RefusedError if a
        key or `flops` is invalid.
        """
        now = self._clock()
        register_workload(session, workload_key, workload_document, name, flops, now)
        register_target(session, target_key, target_document, now)

    @reading
    def workload(self, session: Session, key: str) -> WorkloadEntry | None:
        """Return the workload of this key, or None if it is unknown or damaged."""
        return find_workload(session, key)

    @reading
    def target(self, session: Session, key: str) -> dict[str, Any] | None:
        """Return the JSON description of a target, or None if it is unknown or damaged."""
        return find_target(session, key)


def register_workload(
    session: Session, key: str, document: dict[str, Any], name: str, flops: int, now: datetime
) -> None:
    """Store a workload. If an equal workload is stored, its document and name are kept. Raise
    KeyConflict if another document is stored and `document` does not have the key `key`."""
    if not 0 <= flops < 2**63:
        raise RefusedError(f"flops: must be in 0..2**63-1, got {flops}")
    if "\0" in name:
        raise RefusedError("name: must be text without NUL characters")
    text = canonical_bytes(document).decode()
    row = {"key": _checked_key(key), "name": name, "flops": flops, "document": text}
    row |= {"created_at": now, "row_sha256": row_hash([key, name, flops, text])}
    known = find_workload(session, key)
    if known is None:
        row |= form_keys(text)
        if insert_ignore(session, WorkloadRow, [row]):
            return
        known = find_workload(session, key)
    if known is None:  # stored and damaged: `document` repairs it
        mended = update(WorkloadRow).where(WorkloadRow.key == key).values(row)
        session.execute(mended.execution_options(synchronize_session=False))
    elif known.document != document and workload_key_of(document) != key:
        raise KeyConflict(
            f"workload {key}: another computation is stored under this key; the one given "
            f"has the key {workload_key_of(document)}"
        )


def register_target(session: Session, key: str, document: dict[str, Any], now: datetime) -> None:
    """Store a target. If it is stored already, only the probes are replaced, unless `document` has
    none (mocked timings)."""
    text = canonical_bytes(document).decode()
    row: dict[str, Any] = {"key": _checked_key(key), "document": text, "created_at": now}
    row["row_sha256"] = row_hash([key, text])
    if insert_ignore(session, TargetRow, [row]):
        return
    if not _is_probed(document) and find_target(session, key) is not None:
        return
    renewed = update(TargetRow).where(
        TargetRow.key == key,
        or_(TargetRow.document != text, TargetRow.row_sha256 != row["row_sha256"]),
    )
    row.pop("created_at")
    session.execute(renewed.values(row).execution_options(synchronize_session=False))


def find_workload(session: Session, key: str) -> WorkloadEntry | None:
    """Return the workload of this key, or None if it is unknown or damaged."""
    return workload_entry(session.get(WorkloadRow, key))


def find_target(session: Session, key: str) -> dict[str, Any] | None:
    """Return the document of the target of this key, or None if it is unknown or damaged."""
    return target_document(session.get(TargetRow, key))


def workload_entry(row: Any) -> WorkloadEntry | None:
    """Return the workload of an intact row. For a damaged row, return None and log a line."""
    if row is None or not _served("workload", row, WORKLOAD):
        return None
    return WorkloadEntry(row.key, row.name, row.flops, json.loads(row.document))


def target_document(row: Any) -> dict[str, Any] | None:
    """Return the document of an intact row. For a damaged row, return None and log a line."""
    if row is None or not _served("target", row, TARGET):
        return None
    document: dict[str, Any] = json.loads(row.document)
    return document


def workload_key_of(document: dict[str, Any]) -> str:
    """Return the key of a workload document. Raise WorkloadError if the document is invalid."""
    return Workload.from_json(document).key


def form_keys(document: str) -> dict[str, str | None]:
    """Return the columns by which workloads that resemble a workload's JSON text are found; they
    are None if the text describes none."""
    from tilewright.schedules.sketches.forms.spellings import form_key  # Start-up: only writers do

    try:
        workload = Workload.from_json(json.loads(document))
        return {"structure": structure_of(workload).key, "form": form_key(workload)}
    except (WorkloadError, ValueError):
        return {"structure": None, "form": None}


def target_key_of(document: dict[str, Any]) -> str:
    """Return the key of a target document. Raise TargetError if the document is invalid."""
    return Target.from_json(document).key


def _is_probed(document: dict[str, Any]) -> bool:
    return bool((document.get("probes") or {}).get("peak_gflops"))


def _checked_key(key: str) -> str:
    if not 1 <= len(key) <= 80:
        raise RefusedError(f"key: must be text of 1..80 characters, got {key!r}")
    return key


def _served(kind: str, row: Any, columns: tuple[str, ...]) -> bool:
    intact = is_intact(row, columns)
    if not intact:
        log.warning("%s %s is damaged and not served; run `tilewright db check`", kind, row.key)
    return intact
