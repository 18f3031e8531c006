"""`KeyStore`: what a store promises about keys of the API. `store.py` has the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime

    from .keys import ApiKey, StoredKeys


class KeyStore(Protocol):
    """Keys by their ids; of a secret only its hash is stored."""

    def add_key(self, key: ApiKey) -> None:
        """Store a key. Its secret is not among what is stored."""
        ...

    def keys(self) -> StoredKeys:
        """Every key there is, revoked and expired ones included."""
        ...

    def revoke_key(self, key_id: str) -> ApiKey:
        """Make a key useless from now on. UnknownKey."""
        ...

    def replace_key(self, key_id: str, key: ApiKey, until: datetime) -> ApiKey:
        """Store `key` in the stead of `key_id`, which stays valid until `until`; the old one.

        UnknownKey.
        """
        ...
