"""Keys of the API as rows: who may do what, and until when. Never the secret."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from .errors import UnknownKey
from .models import ApiKeyRow
from .moments import rfc3339
from .rows import row_hash

log = logging.getLogger("tilewright.db")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret. `id` is the part of the secret that may be shown; `owner` is whose
    jobs it sees, and stays the same when a key is replaced."""

    id: str
    owner: str
    note: str
    scopes: tuple[str, ...]
    secret_sha256: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """Every sound key by its id, and how many rows there are, damaged ones among them: a damaged
    key opens nothing, and does not make a service open either."""

    by_id: dict[str, ApiKey]
    rows: int


class KeyRepository:
    """Works in the session it is given; the caller commits."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, key: ApiKey) -> None:
        self._session.add(ApiKeyRow(**_columns(key)))
        self._session.flush()

    def all(self) -> StoredKeys:
        """Every key, oldest first."""
        statement = select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.id)
        rows = self._session.scalars(statement).all()
        found = [key for key in map(_key, rows) if key is not None]
        return StoredKeys({key.id: key for key in found}, len(rows))

    def revoke(self, key_id: str, now: datetime) -> ApiKey:
        """The key, never valid again. Revoking it once more changes nothing. UnknownKey."""
        key = self._sound(key_id)
        return key if key.revoked_at is not None else self._put(replace(key, revoked_at=now))

    def expire(self, key_id: str, at: datetime) -> ApiKey:
        """The key, valid until `at` at the latest. UnknownKey."""
        key = self._sound(key_id)
        sooner = at if key.expires_at is None else min(at, key.expires_at)
        return self._put(replace(key, expires_at=sooner))

    def _sound(self, key_id: str) -> ApiKey:
        row = self._session.get(ApiKeyRow, key_id, with_for_update=True)
        key = None if row is None else _key(row)
        if key is None:
            raise UnknownKey(f"key {key_id[:16]!r}: there is no such key")
        return key

    def _put(self, key: ApiKey) -> ApiKey:
        row = self._session.get_one(ApiKeyRow, key.id)
        for name, value in _columns(key).items():
            setattr(row, name, value)
        self._session.flush()
        return key


def sound(row: ApiKeyRow) -> bool:
    """Whether the row is what was once written."""
    try:
        return _hash(row) == row.row_sha256
    except (TypeError, ValueError, AttributeError):  # damage can turn a moment into bytes
        return False


def _hash(row: Any) -> str:
    moments = (row.created_at, row.expires_at, row.revoked_at)
    texts = [row.id, row.owner, row.note, row.scopes, row.secret_sha256]
    return row_hash(texts + [None if at is None else rfc3339(at) for at in moments])


def _columns(key: ApiKey) -> dict[str, Any]:
    row = ApiKeyRow(
        id=key.id,
        owner=key.owner,
        note=key.note,
        scopes=" ".join(sorted(key.scopes)),
        secret_sha256=key.secret_sha256,
        created_at=key.created_at,
        expires_at=key.expires_at,
        revoked_at=key.revoked_at,
    )
    names = [column.name for column in ApiKeyRow.__table__.columns if column.name != "row_sha256"]
    return {name: getattr(row, name) for name in names} | {"row_sha256": _hash(row)}


def _key(row: ApiKeyRow) -> ApiKey | None:
    """The key of a sound row. A damaged one opens nothing: None, and a warning in the log."""
    if not sound(row):
        log.warning("key %s is damaged and opens nothing; run `tilewright db check`", row.id)
        return None
    return ApiKey(
        id=row.id,
        owner=row.owner,
        note=row.note,
        scopes=tuple(row.scopes.split()),
        secret_sha256=row.secret_sha256,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
