"""API keys as rows: their owners, scopes and expiry. The secret is never stored."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from ..core.hashes import row_hash
from ..core.models import ApiKeyRow
from ..core.parts import StorePart, reading, writing
from ..errors import UnknownKey
from ..values.jobs import ApiKey, StoredKeys
from ..values.moments import rfc3339

log = logging.getLogger("tilewright.db")


class KeyStore(StorePart):
    """The methods of a store that read and write API keys. Only the hash of a secret is stored."""

    @writing
    def add_key(self, session: Session, key: ApiKey) -> None:
        """Store a key without its secret."""
        _insert(session, key)

    @reading
    def keys(self, session: Session) -> StoredKeys:
        """Return every key, oldest first, including revoked and expired keys."""
        statement = select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.id)
        rows = session.scalars(statement).all()
        found = [key for key in map(_key, rows) if key is not None]
        return StoredKeys({key.id: key for key in found}, len(rows))

    @writing
    def revoke_key(self, session: Session, key_id: str) -> ApiKey:
        """Revoke a key permanently, if it is not revoked. Raise UnknownKey if no key has the id."""
        key = _intact(session, key_id)
        if key.revoked_at is not None:
            return key
        return _update(session, replace(key, revoked_at=self._clock()))

    @writing
    def replace_key(self, session: Session, key_id: str, key: ApiKey, until: datetime) -> ApiKey:
        """Store `key` as the successor of the key `key_id`. The old key expires at `until` or
        earlier, and is returned. Raise UnknownKey if no key has the id `key_id`."""
        old = _intact(session, key_id)
        sooner = until if old.expires_at is None else min(until, old.expires_at)
        old = _update(session, replace(old, expires_at=sooner))
        _insert(session, key)
        return old


def is_intact_key(row: ApiKeyRow) -> bool:
    """Return whether the row is unchanged since it was written."""
    try:
        return _hash(row) == row.row_sha256
    except (TypeError, ValueError, AttributeError):  # damage can turn a timestamp into bytes
        return False


def _insert(session: Session, key: ApiKey) -> None:
    session.add(ApiKeyRow(**_columns(key)))
    session.flush()


def _intact(session: Session, key_id: str) -> ApiKey:
    row = session.get(ApiKeyRow, key_id, with_for_update=True)
    key = None if row is None else _key(row)
    if key is None:
        raise UnknownKey(f"key {key_id[:16]!r}: there is no such key")
    return key


def _update(session: Session, key: ApiKey) -> ApiKey:
    row = session.get_one(ApiKeyRow, key.id)
    for name, value in _columns(key).items():
        setattr(row, name, value)
    session.flush()
    return key


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
    """Return the key of an intact row. For a damaged row, return None and log a warning."""
    if not is_intact_key(row):
        log.warning("key %s is damaged and grants no access; run `tilewright db check`", row.id)
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
