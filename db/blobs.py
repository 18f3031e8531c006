"""Bytes named by their sha256: object files, headers, LLVM IR."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from .engine import insert_ignore
from .errors import BlobTooLarge
from .models import MAX_BLOB_BYTES, BlobRow

log = logging.getLogger("tilewright.db")


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes and what they are; `sha256` is 64 hex digits."""

    sha256: str
    media_type: str
    data: bytes


class BlobRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, data: bytes, media_type: str, now: datetime, *, built: bool = False) -> str:
        """Store `data` and give its sha256. Storing it again repairs a damaged copy. `built`: a
        build asked for it, and lock files may name it."""
        if len(data) > MAX_BLOB_BYTES:
            raise BlobTooLarge(f"blob: at most {MAX_BLOB_BYTES} bytes, got {len(data)}")
        name = hashlib.sha256(data).hexdigest()
        row = {"sha256": name, "media_type": media_type, "data": data, "created_at": now}
        if not insert_ignore(self._session, BlobRow, [row]):
            damaged = (BlobRow.sha256 == name, BlobRow.data != data)
            self._session.execute(update(BlobRow).where(*damaged).values(data=data))
        if built:
            self._session.execute(update(BlobRow).filter_by(sha256=name).values(built_at=now))
        return name

    def get(self, sha256: str) -> Blob | None:
        """The bytes of this name; None if they are not there or no longer what the name says."""
        row = self._session.get(BlobRow, sha256)
        if row is None:
            return None
        if not intact(row):
            log.warning("blob %s is damaged and not served; run `tilewright db check`", sha256)
            return None
        return Blob(row.sha256, row.media_type, row.data)

    def count(self) -> int:
        return int(self._session.scalar(select(func.count()).select_from(BlobRow)) or 0)


def intact(row: BlobRow) -> bool:
    """Whether the bytes are what the name says."""
    if not isinstance(row.data, bytes):  # damage can turn bytes into text
        return False
    return hashlib.sha256(row.data).hexdigest() == row.sha256
