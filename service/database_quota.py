"""The size limit of the database: prepared answers are evicted first, then new work is refused."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.service import timeouts
from tilewright.service.errors import NoRoom

if TYPE_CHECKING:
    from tilewright.db import Store

log = logging.getLogger("tilewright.room")

MARGIN = 0.1
"""Fraction of the limit that an eviction frees, so that evictions are rare."""


@dataclass(slots=True)
class DatabaseQuota:
    """A limit of `limit_bytes` on the database; 0 is no limit. Thread-safe.

    Only new work is refused. Accepted work is stored and running jobs continue, so the database can
    exceed the limit by the work in progress.
    """

    store: Store
    limit_bytes: int
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _used_bytes: int = 0
    _looked: float = float("-inf")

    def check(self) -> None:
        """Raise NoRoom if the database has reached its limit and nothing in it can be evicted."""
        if not self.limit_bytes:
            return
        with self._lock:
            if self.clock() - self._looked >= timeouts.DATABASE_SIZE_CACHE_SECS:
                self._used_bytes = self._used_after_eviction()
                self._looked = self.clock()
            used = self._used_bytes
        if used >= self.limit_bytes:
            raise NoRoom(
                f"the database has {used} bytes; its limit is {self.limit_bytes}, and nothing in "
                "it can be evicted"
            )

    def is_left(self) -> bool:
        """Return whether new work may be stored."""
        try:
            self.check()
        except NoRoom:
            return False
        return True

    def _used_after_eviction(self) -> int:
        used = self.store.used_bytes()
        if used < self.limit_bytes:
            return used
        gone = self.store.make_room(used - int(self.limit_bytes * (1 - MARGIN)))
        if gone.preparations or gone.blobs:
            log.info(
                "evicted from the database: %d preparations, and %d files of %d bytes",
                gone.preparations, gone.blobs, gone.blob_bytes,
            )  # fmt: skip
        return self.store.used_bytes()
