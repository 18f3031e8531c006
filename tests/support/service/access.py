"""Keys for tests."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

from tests.support.service.records import HOST, MATMUL
from tilewright.db import Store
from tilewright.db.values.jobs import StoredJob
from tilewright.service.access.keyring import Keyring
from tilewright.service.access.keys import DEFAULT_SCOPES, KeyScope, new_key
from tilewright.service.jobs.request import read_job
from tilewright.service.settings import Settings


def make_key(
    store: Store,
    *,
    owner: str = "",
    scopes: tuple[KeyScope, ...] = DEFAULT_SCOPES,
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


def a_job(store: Store, **more: Any) -> StoredJob:
    """A job that waits."""
    request = read_job({"workload": MATMUL, "target": HOST.to_json()}, Settings()).to_json()
    job, _ = store.create_job(request, body_hash="x", flight_key="x", **more)
    return job


def keyring_of(app: Any) -> Keyring:
    """The keyring within the middleware of an application that was started."""
    layer = app.middleware_stack
    while not hasattr(layer, "_keyring"):
        layer = getattr(layer, "app", None) or layer._app
    found: Keyring = layer._keyring
    return found
