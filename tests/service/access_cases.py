"""Keys for tests."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from db import Store
from service.access.keys import DEFAULT_SCOPES, Scope, new_key


def make_key(
    store: Store,
    *,
    owner: str = "",
    scopes: tuple[Scope, ...] = DEFAULT_SCOPES,
    expires_at: datetime | None = None,
) -> str:
    """The text of a key that `store` now has."""
    text, key = new_key(
        owner=owner,
        note="",
        scopes=scopes,
        now=datetime.now(UTC),
        expires_at=expires_at,
        entropy=os.urandom,
    )
    store.add_key(key)
    return text


def bearer(text: str) -> dict[str, str]:
    """The header that carries the key."""
    return {"Authorization": f"Bearer {text}"}
