"""The keys as the API sees them: a new one works at once, a revoked one ends within a second."""

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
from tilewright.service.access.keys import ANYBODY, KeyScope, Principal, id_of, opens
from tilewright.service.errors import NotAuthenticated

if TYPE_CHECKING:
    from tilewright.db import Store


READERS = 4
"""Threads that read keys: one, and those that were given up and have not noticed yet."""


class Keyring:
    """Says who a request is from. `required` None: keys are asked for as soon as one was made.

    All keys are read together, at most once in `fresh_secs`. For a key that is not among them they
    are read once more, as it may have just been made; a flood of requests with invented keys waits
    for each other and costs the database no more than `1 / UNKNOWN_KEY_READ_SECS` readings a
    second.

    While the database cannot be read the keys that are known count on, for
    `KEYS_WITHOUT_DATABASE_SECS`: what needs no database (`/metrics`) is answered then, and what
    needs one says itself that there is none.
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
        """Who sends `text` as a key (None: no key). NotAuthenticated; StoreError."""
        if self._required is False and text is None:
            return ANYBODY
        now = self._clock()
        stored = await self._known_keys(now - self._fresh_secs)
        if text is None:
            if self._required or stored.rows:
                raise NotAuthenticated("this service asks for a key", code="no_key")
            return ANYBODY
        if not (self._required or stored.rows):
            return ANYBODY  # a key of elsewhere: nothing is asked for here
        key_id = id_of(text)
        if key_id is not None and key_id not in stored.by_id:
            stored = await self._keys(now)
        key = stored.by_id.get(key_id) if key_id is not None else None
        if not opens(text, key) or key is None:
            raise NotAuthenticated("this is no key of this service", code="bad_key")
        return self._checked(key)

    def _checked(self, key: ApiKey) -> Principal:
        if key.revoked_at is not None:
            raise NotAuthenticated(f"key {key.id} was revoked", code="revoked_key")
        if key.expires_at is not None and key.expires_at <= self._now():
            raise NotAuthenticated(f"key {key.id} has expired", code="expired_key")
        known = frozenset(scope for scope in KeyScope if scope in key.scopes)
        return Principal(key.owner, key.id, known)

    async def _known_keys(self, not_before: float) -> StoredKeys:
        """The keys as `_keys` has them, or as they were last read if that fails now."""
        if (
            self._stored is None
            or self._clock() - self._read_at > timeouts.KEYS_WITHOUT_DATABASE_SECS
        ):
            return await self._keys(not_before)
        if self._read_at >= not_before or self._failed_at >= not_before:
            return self._stored  # one failure in a while is enough: each may take its time
        try:
            with anyio.fail_after(timeouts.KEY_READ_SECS):
                return await self._keys(not_before)
        except (StoreError, TimeoutError):
            self._failed_at = self._clock()
            return self._stored

    async def _keys(self, not_before: float) -> StoredKeys:
        """The keys as they were at `not_before` or later."""
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
            if self._stored is None or started >= self._read_at:  # also if given up meanwhile
                self._stored, self._read_at = stored, started
            return stored

        # Threads of its own: in an outage the others all wait for the database.
        return await run_sync(read, limiter=self._threads, abandon_on_cancel=True)
