"""Every query on artefacts: the files a record was built into, and the blobs that hold them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from sqlalchemy import delete, insert, select
from sqlalchemy.orm import Session

from .artefact_rows import HASHED, Artefact, artefacts_of
from .blobs import BlobRepository
from .errors import NotRegistered
from .models import ArtefactRow
from .records import RecordRepository
from .rows import row_hash

KEYS_PER_QUERY = 500  # SQLite has a limit on parameters


@dataclass(frozen=True, slots=True)
class ArtefactFile:
    """A file to keep: what it is, what it is called, its bytes."""

    kind: str
    name: str
    media_type: str
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


class ArtefactRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def of(self, record_key: str) -> list[Artefact]:
        return artefacts_of(
            self._session.scalars(select(ArtefactRow).filter_by(record_key=record_key))
        )

    def of_many(self, record_keys: Sequence[str]) -> dict[str, list[Artefact]]:
        """The artefacts of each record that has some."""
        found: dict[str, list[Artefact]] = {}
        for start in range(0, len(record_keys), KEYS_PER_QUERY):
            keys = record_keys[start : start + KEYS_PER_QUERY]
            statement = (
                select(ArtefactRow)
                .where(ArtefactRow.record_key.in_(keys))
                .order_by(ArtefactRow.record_key)
            )
            rows = self._session.scalars(statement)
            for key, group in groupby(rows, key=lambda row: row.record_key):
                found[key] = artefacts_of(group)
        return found

    def add(self, record_key: str, files: Sequence[ArtefactFile], now: datetime) -> list[Artefact]:
        """Keep `files` as the artefacts of a record, all or none; the ones it has afterwards.

        The first ones stay, for somebody may have linked them; what was damaged of them is mended
        if it is given again. NotRegistered if the record is not stored.
        """
        if RecordRepository(self._session).row(record_key, locked=True) is None:
            raise NotRegistered(f"artefacts of {record_key}: there is no such record")
        blobs, known = BlobRepository(self._session), self.of(record_key)
        if {file.kind for file in files} <= {artefact.kind for artefact in known}:
            kept = {artefact.sha256 for artefact in known}
            for file in files:
                if file.sha256 in kept:
                    blobs.put(file.data, file.media_type, now)
            return known
        self._session.execute(delete(ArtefactRow).filter_by(record_key=record_key))
        for file in files:
            row: dict[str, Any] = {
                "record_key": record_key,
                "kind": file.kind,
                "name": file.name,
                "sha256": blobs.put(file.data, file.media_type, now),
                "bytes": len(file.data),
            }
            row["row_sha256"] = row_hash([row[name] for name in HASHED])
            self._session.execute(insert(ArtefactRow).values(**row))
        return self.of(record_key)
