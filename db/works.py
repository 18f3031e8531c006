"""Workloads and targets: the two documents every record refers to."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from schedules.record import canonical_bytes

from .engine import insert_ignore
from .errors import KeyConflict, RefusedError
from .models import TargetRow, WorkloadRow
from .strict_json import loads_strictly

# Not part of a workload's identity: two spellings of one computation may differ in them.
_FOR_PEOPLE = ("name", "declared_flops")


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
        """Keep the document of `key`. The first name stays; KeyConflict if the meaning differs."""
        if not 0 <= flops < 2**63:
            raise RefusedError(f"flops: must be in 0..2**63-1, got {flops}")
        row = {
            "key": _checked_key(key),
            "name": name,
            "flops": flops,
            "document": canonical_bytes(document).decode(),
            "created_at": now,
        }
        if insert_ignore(self._session, WorkloadRow, [row]):
            return
        known = loads_strictly(
            self._session.scalars(select(WorkloadRow.document).filter_by(key=key)).one()
        )
        if _meaning(known) != _meaning(document):
            raise KeyConflict(
                f"workload {key}: another document is stored under this key; "
                "one of the two was not made by this version's canonical form"
            )

    def register_target(self, key: str, document: dict[str, Any], now: datetime) -> None:
        """Keep the document of `key`; a later one replaces the probes, which the key leaves out."""
        text = canonical_bytes(document).decode()
        row = {"key": _checked_key(key), "document": text, "created_at": now}
        if insert_ignore(self._session, TargetRow, [row]):
            return
        changed = (TargetRow.key == key, TargetRow.document != text)
        self._session.execute(update(TargetRow).where(*changed).values(document=text))

    def workload(self, key: str) -> WorkloadEntry | None:
        row = self._session.get(WorkloadRow, key)
        if row is None:
            return None
        return WorkloadEntry(row.key, row.name, row.flops, loads_strictly(row.document))

    def target(self, key: str) -> dict[str, Any] | None:
        row = self._session.get(TargetRow, key)
        if row is None:
            return None
        document: dict[str, Any] = loads_strictly(row.document)
        return document


def target_key_of(document: dict[str, Any]) -> str:
    """The key that a target document gives; TargetError if it is not one."""
    from schedules.target import Target  # brings NumPy, which queries do not need

    return Target.from_json(document).key


def _meaning(document: dict[str, Any]) -> bytes:
    return canonical_bytes({k: v for k, v in document.items() if k not in _FOR_PEOPLE})


def _checked_key(key: str) -> str:
    if not 1 <= len(key) <= 80:
        raise RefusedError(f"key: must be text of 1..80 characters, got {key!r}")
    return key
