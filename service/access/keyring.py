"""The API keys in memory. A new key is valid immediately; a revoked key becomes invalid within a
second."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import anyio
from anyio.to_thread import run_sync

from tilewright.db.errors import StoreError
from tilewright.db.values.jobs import ApiKey, StoredKeys
from tilewright.service import timeouts
from tilewright.service.access.keys import ANYBODY, KeyScope, Principal, id_of, matches_key
from tilewright.service.errors import NotAuthenticated

if TYPE_CHECKING:
    from tilewright.db import Store


READERS = 4
"""The number of threads that read keys. One reads them; the others may still wait for the database
in reads that were abandoned."""


class Keyring:
    """Authenticates requests. If `required` is None, keys are required after the first one was
    created.

    All keys are read together, at most once in `fresh_secs`. An unknown key causes one more read,
    because it may be new. Requests with unknown keys wait for each other, and cause at most `1 /
    UNKNOWN_KEY_READ_SECS` reads per second.

    While the database cannot be read, the known keys remain valid for `KEYS_WITHOUT_DATABASE_SECS`.
    Routes that need no database (`/metrics`) then respond, and others report the outage.
    """

    def __init__(
        self,
        store: Store,
        *,
        required: bool | None,
        fresh_secs: float = timeouts.KEY_REVOCATION_SECS,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._store = store
        self._required = required
        self._fresh_secs = fresh_secs
        self._clock = clock
        self._now = now
        self._sleep = sleep
        self._stored: StoredKeys | None = None
        self._read_at = 0.0
        self._failed_at = float("-inf")
        self._reading = anyio.Lock()
        self._threads = anyio.CapacityLimiter(READERS)

    async def principal(self, text: str | None) -> Principal:
        """Return the caller who sends `text` as a key (None: no key). Raise NotAuthenticated if the
        key is invalid, StoreError if the keys cannot be read."""
        if self._required is False and text is None:
            return ANYBODY
        now = self._clock()
        stored = await self._known_keys(now - self._fresh_secs)
        if text is None:
            if self._required or stored.rows:
                raise NotAuthenticated("this service requires a key", code="no_key")
            return ANYBODY
        if not (self._required or stored.rows):
            return ANYBODY  # the key of another service; this one requires none
        key_id = id_of(text)
        if key_id is not None and key_id not in stored.by_id:
            stored = await self._keys(now)
        key = stored.by_id.get(key_id) if key_id is not None else None
        if not matches_key(text, key) or key is None:
            raise NotAuthenticated("this is not a key of this service", code="bad_key")
        return self._checked(key)

    def _checked(self, key: ApiKey) -> Principal:
        if key.revoked_at is not None:
            raise NotAuthenticated(f"key {key.id} was revoked", code="revoked_key")
        if key.expires_at is not None and key.expires_at <= self._now():
            raise NotAuthenticated(f"key {key.id} has expired", code="expired_key")
        known = frozenset(scope for scope in KeyScope if scope in key.scopes)
        return Principal(key.owner, key.id, known)

    async def _known_keys(self, not_before: float) -> StoredKeys:
        """Return the result of `_keys`, or the last known keys if the database cannot be read."""
        if (
            self._stored is None
            or self._clock() - self._read_at > timeouts.KEYS_WITHOUT_DATABASE_SECS
        ):
            return await self._keys(not_before)
        if self._read_at >= not_before or self._failed_at >= not_before:
            return self._stored  # the last read failed; another would delay the caller again
        try:
            with anyio.fail_after(timeouts.KEY_READ_SECS):
                return await self._keys(not_before)
        except (StoreError, TimeoutError):
            self._failed_at = self._clock()
            return self._stored

    async def _keys(self, not_before: float) -> StoredKeys:
        """Return the keys, read at `not_before` or later."""
        if self._stored is None or self._read_at < not_before:
            async with self._reading:
                if self._stored is None or self._read_at < not_before:
                    return await self._read()
        return self._stored

    async def _read(self) -> StoredKeys:
        if self._stored is not None:
            await self._sleep(
                max(0.0, self._read_at + timeouts.UNKNOWN_KEY_READ_SECS - self._clock())
            )
        started = self._clock()

        def read() -> StoredKeys:
            stored = self._store.keys()
            if self._stored is None or started >= self._read_at:  # this thread may be abandoned
                self._stored, self._read_at = stored, started
            return stored

        # Dedicated threads, because in an outage all shared threads wait for the database.
        return await run_sync(read, limiter=self._threads, abandon_on_cancel=True)
