"""The calls on keys of the API, kept on a SQL database, each in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from .engine import Database
from .keys import ApiKey, KeyRepository, StoredKeys


class SqlKeys:
    """See `KeyStore`; `KeyRepository` has the rules."""

    _database: Database
    _clock: Callable[[], datetime]

    def add_key(self, key: ApiKey) -> None:
        """Store a key. Its secret is not among what is stored."""
        with self._database.writing() as session:
            KeyRepository(session).add(key)

    def keys(self) -> StoredKeys:
        """Every key there is, revoked and expired ones included."""
        with self._database.reading() as session:
            return KeyRepository(session).all()

    def revoke_key(self, key_id: str) -> ApiKey:
        """Make a key useless from now on. UnknownKey."""
        with self._database.writing() as session:
            return KeyRepository(session).revoke(key_id, self._clock())

    def replace_key(self, key_id: str, key: ApiKey, until: datetime) -> ApiKey:
        """Store `key` in the stead of `key_id`, which stays valid until `until`; the old one.

        UnknownKey.
        """
        with self._database.writing() as session:
            repository = KeyRepository(session)
            old = repository.expire(key_id, until)
            repository.add(key)
            return old
