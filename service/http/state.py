"""The state that all routes of an application share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from anyio import CapacityLimiter, Semaphore, fail_after
from anyio.to_thread import run_sync

from tilewright.service.answers.answer_service import AnswerService
from tilewright.service.database_quota import DatabaseQuota
from tilewright.service.errors import Unavailable
from tilewright.service.file_identity import FileIdentity
from tilewright.service.http.feeds import Feeds
from tilewright.service.http.metrics import Metrics
from tilewright.service.http.preparation_watch import PreparationWatch
from tilewright.service.jobs.supervisor import WorkerHealth
from tilewright.service.limits import RequestLimits
from tilewright.service.settings import Settings

if TYPE_CHECKING:
    from tilewright.db import Store


WRITERS = 8
"""Largest number of requests that wait for the database's write lock. Readers never wait for it."""

THREADS_AT_ONCE = 4
"""Threads of one interpreter slow each other down. Lookups have separate threads, so that a long
lookup does not delay single requests."""

T = TypeVar("T")


@dataclass(slots=True)
class ConcurrencyLimit:
    """A limit on the number of simultaneous users of a resource, such as event streams."""

    limit: int
    _open: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self) -> bool:
        with self._lock:
            if self._open >= self.limit:
                return False
            self._open += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._open -= 1


@dataclass(frozen=True, slots=True)
class ServiceState:
    """Settings, database and counters of one running service. `stopping` ends streams and waits.
    `worker` returns the health of this process's worker, or None if it has no worker."""

    settings: Settings
    store: Store
    metrics: Metrics
    streams: ConcurrencyLimit
    stopping: threading.Event
    feeds: Feeds
    identity: FileIdentity
    worker: Callable[[], WorkerHealth | None]
    answers: AnswerService
    watch: PreparationWatch
    writers: Semaphore = field(default_factory=lambda: Semaphore(WRITERS))
    finds: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(THREADS_AT_ONCE))
    lookups: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(THREADS_AT_ONCE))

    @property
    def room(self) -> DatabaseQuota:
        return self.answers.prepare_queue.room

    @property
    def limits(self) -> RequestLimits:
        return self.settings.limits

    async def write(self, function: Callable[..., T], *args: object, **named: object) -> T:
        """Run `function`, which writes to the database, in a thread. Raise Unavailable if too many
        writers wait, or if the database file was replaced."""
        problem = self.identity.problem()
        if problem:
            raise Unavailable(problem, code="database_replaced")
        try:
            with fail_after(self.settings.store_secs):
                await self.writers.acquire()
        except TimeoutError as error:
            raise Unavailable(
                f"the database is busy: {WRITERS} requests have waited to write for "
                f"{self.settings.store_secs:g} s",
                code="database_busy",
            ) from error
        try:
            return await run_sync(partial(function, *args, **named))
        finally:
            self.writers.release()
