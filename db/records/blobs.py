"""Blobs, which are bytes named by their SHA-256, and artefacts, the files of a record."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, exists, func, insert, select, update
from sqlalchemy.orm import Session

from tilewright.schedules.canonical import canonical_bytes

from ..core.engine import KEYS_PER_STATEMENT, changed, insert_ignore
from ..core.hashes import ARTEFACT, row_hash
from ..core.models import MAX_BLOB_BYTES, ArtefactRow, BlobRow, PreparedFileRow
from ..core.parts import StorePart, reading, writing
from ..errors import BlobTooLarge, NotRegistered
from ..values.records import EXPLANATION, Artefact, ArtefactFile, Blob
from .records import record_row
from .rows import artefacts_of

log = logging.getLogger("tilewright.db")


class FileStore(StorePart):
    """The methods of a store that read and write files: object files, headers, LLVM IR."""

    @writing
    def put_blob(self, session: Session, data: bytes, media_type: str) -> str:
        """Store bytes that a build requested; return their SHA-256 (64 hex digits). Raise
        BlobTooLarge above 4 MiB."""
        now = self._clock()
        self._database.serialise(session, "blobs")
        name = put_blob(session, data, media_type, now)
        session.execute(update(BlobRow).filter_by(sha256=name).values(built_at=now))
        return name

    @reading
    def blob(self, session: Session, sha256: str) -> Blob | None:
        """Return the blob, or None if it is missing, or damaged (`put_blob` can repair it)."""
        row = session.get(BlobRow, sha256)
        if row is None:
            return None
        if not is_intact_blob(row):
            log.warning("blob %s is damaged and not served; run `tilewright db check`", sha256)
            return None
        return Blob(row.sha256, row.media_type, row.data)

    @writing
    def add_artefacts(
        self, session: Session, record_key: str, files: Sequence[ArtefactFile]
    ) -> list[Artefact]:
        """Store the files that were built from a record, all or none; return the record's files.

        Existing files are kept, because programs may be linked with them, but repaired if damaged.
        Raise NotRegistered if the record is not stored, BlobTooLarge if a file is too large.
        """
        now = self._clock()
        self._database.serialise(session, "blobs")  # no blob is pruned before a row refers to it
        if record_row(session, record_key, locked=True) is None:
            raise NotRegistered(f"artefacts of {record_key}: there is no such record")
        known = _artefacts(session, record_key)
        if {file.kind for file in files} <= {artefact.kind for artefact in known}:
            kept = {artefact.sha256 for artefact in known}
            for file in files:
                if file.sha256 in kept:
                    put_blob(session, file.data, file.media_type, now)
            return known
        built = ArtefactRow.record_key == record_key, ArtefactRow.kind != EXPLANATION
        session.execute(delete(ArtefactRow).where(*built))
        insert_files(session, ArtefactRow, ARTEFACT, record_key, files, now)
        return _artefacts(session, record_key)

    @reading
    def explanation(self, session: Session, record_key: str) -> dict[str, Any] | None:
        """Return the document that `replace_explanation` stored, or None if there is none or it is
        damaged."""
        found = _explanations(session, record_key)
        row = session.get(BlobRow, found[0]) if found else None
        if row is None or not is_intact_blob(row):
            return None
        document: dict[str, Any] = json.loads(row.data)
        return document

    @writing
    def replace_explanation(
        self, session: Session, record_key: str, document: dict[str, Any]
    ) -> None:
        """Store the explanation of a record, which is JSON data, instead of an earlier one.

        Raise NotRegistered if the record is not stored, BlobTooLarge if the document is too large.
        """
        self._database.serialise(session, "blobs")
        if record_row(session, record_key, locked=True) is None:
            raise NotRegistered(f"explanation of {record_key}: there is no such record")
        old = _explanations(session, record_key)
        session.execute(delete(ArtefactRow).filter_by(record_key=record_key, kind=EXPLANATION))
        drop_blobs(session, old, built=False)
        file = ArtefactFile(
            EXPLANATION, "explanation.json", "application/json", canonical_bytes(document)
        )
        insert_files(session, ArtefactRow, ARTEFACT, record_key, [file], self._clock())

    @reading
    def artefacts(self, session: Session, record_key: str) -> list[Artefact]:
        """Return the files of a record, by kind; empty if none were stored."""
        return _artefacts(session, record_key)


def insert_files(
    session: Session,
    table: type[ArtefactRow] | type[PreparedFileRow],
    columns: Sequence[str],
    owner_key: str,
    files: Sequence[ArtefactFile],
    now: datetime,
) -> None:
    """Insert each file as a row of `table`, and its bytes as a blob. The first of the hashed
    `columns` is the key of the owner."""
    for file in files:
        sha256 = put_blob(session, file.data, file.media_type, now)
        values = [owner_key, file.kind, file.name, sha256, len(file.data)]
        row = dict(zip(columns, values, strict=True))
        session.execute(insert(table).values(**row, row_sha256=row_hash(values)))


def put_blob(session: Session, data: bytes, media_type: str, now: datetime) -> str:
    """Store `data` and return its SHA-256. A damaged copy is repaired."""
    if len(data) > MAX_BLOB_BYTES:
        raise BlobTooLarge(f"blob: at most {MAX_BLOB_BYTES} bytes, got {len(data)}")
    name = hashlib.sha256(data).hexdigest()
    row = {"sha256": name, "media_type": media_type, "data": data, "created_at": now}
    if not insert_ignore(session, BlobRow, [row]):
        damaged = (BlobRow.sha256 == name, BlobRow.data != data)
        session.execute(update(BlobRow).where(*damaged).values(data=data))
    return name


def drop_blobs(session: Session, names: Sequence[str], *, built: bool) -> tuple[int, int]:
    """Delete the blobs in `names` to which no row refers. Blobs that a build requested are deleted
    only if `built`. Return the number and the bytes of the deleted blobs."""
    count = size = 0
    for start in range(0, len(names), KEYS_PER_STATEMENT):
        goes: list[ColumnElement[bool]] = [
            BlobRow.sha256.in_(names[start : start + KEYS_PER_STATEMENT]),
            *unreferenced(),
            *([] if built else [BlobRow.built_at.is_(None)]),
        ]
        size += session.scalar(select(func.sum(func.length(BlobRow.data))).where(*goes)) or 0
        gone = session.execute(
            delete(BlobRow).where(*goes), execution_options={"synchronize_session": False}
        )
        count += changed(gone)
    return count, size


def unreferenced() -> list[ColumnElement[bool]]:
    """Return the conditions that no file of a record or of a preparation refers to a blob."""
    return [
        ~exists().where(ArtefactRow.sha256 == BlobRow.sha256),
        ~exists().where(PreparedFileRow.sha256 == BlobRow.sha256),
    ]


def is_intact_blob(row: BlobRow) -> bool:
    """Return whether the name of the blob is the SHA-256 of its bytes."""
    if not isinstance(row.data, bytes):  # damage can turn bytes into text
        return False
    return hashlib.sha256(row.data).hexdigest() == row.sha256


def _artefacts(session: Session, record_key: str) -> list[Artefact]:
    return artefacts_of(session.scalars(select(ArtefactRow).filter_by(record_key=record_key)))


def _explanations(session: Session, record_key: str) -> list[str]:
    """Return the SHA-256 of the explanation of a record, if there is one."""
    return [one.sha256 for one in _artefacts(session, record_key) if one.kind == EXPLANATION]
