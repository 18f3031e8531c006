"""Waits for preparations: one query serves all waiting requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio.to_thread import run_sync

from tilewright.db.errors import StoreError
from tilewright.service import timeouts

if TYPE_CHECKING:
    import threading

    from tilewright.db import Store
    from tilewright.service.answers.prepare_queue import PrepareQueue

log = logging.getLogger("tilewright.waiting")


@dataclass(slots=True, eq=False)
class _EventWaiter:
    keys: frozenset[str]
    over: asyncio.Event


@dataclass(slots=True)
class PreparationWatch:
    """Wakes waiting requests when their preparations finish, or the service stops."""

    store: Store
    prepare_queue: PrepareQueue
    stopping: threading.Event
    _waiters: set[_EventWaiter] = field(default_factory=set)
    _task: asyncio.Task[None] | None = None

    async def wait(self, keys: Collection[str], secs: float) -> None:
        """Wait until every preparation of `keys` is finished or deleted, `secs` have passed, or the
        service stops."""
        if not keys or secs <= 0:
            return
        waiter = _EventWaiter(frozenset(keys), asyncio.Event())
        self._waiters.add(waiter)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            async with asyncio.timeout(secs):
                await waiter.over.wait()
        except TimeoutError:
            return
        finally:
            self._waiters.discard(waiter)

    async def _watch(self) -> None:
        token: object = None
        looked = 0.0
        loop = asyncio.get_running_loop()
        try:
            while self._waiters and not self.stopping.is_set():
                now = self.store.change_token()
                if (
                    now is None
                    or now != token
                    or loop.time() - looked > timeouts.PREPARATION_RECHECK_SECS
                ):
                    token, looked = now, loop.time()
                    try:
                        await self._look()
                    except StoreError as error:  # the next request reports it
                        log.warning("preparations cannot be read: %s", error)
                        await asyncio.sleep(timeouts.PREPARATION_RECHECK_SECS)
                await asyncio.sleep(timeouts.PREPARATION_POLL_SECS)
        finally:
            for waiter in self._waiters:
                waiter.over.set()

    async def _look(self) -> None:
        waiters = list(self._waiters)  # more may arrive during the query
        keys = frozenset[str]().union(*(waiter.keys for waiter in waiters))
        open_keys = await run_sync(self._unfinished, keys)
        for waiter in waiters:
            if not waiter.keys & open_keys:
                waiter.over.set()

    def _unfinished(self, keys: frozenset[str]) -> set[str]:
        self.prepare_queue.waiting()
        states = self.store.preparation_states(sorted(keys))
        return {key for key, state in states.items() if not state.final}
