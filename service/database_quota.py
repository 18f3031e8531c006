"""How large the database may grow: what can be made again gives way, then nothing more is taken."""

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
"""The share of the limit that is free after room was made, so that it is not made at every look."""


@dataclass(slots=True)
class DatabaseQuota:
    """Of a database that is to hold at most `limit_bytes`, 0 for any size. Threads may share it.

    What was accepted is stored, whatever it takes: a job at work is not broken off. The limit is
    held against what comes next, so the database may grow beyond it by what is under way.
    """

    store: Store
    limit_bytes: int
    clock: Callable[[], float] = time.monotonic
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _used_bytes: int = 0
    _looked: float = float("-inf")

    def check(self) -> None:
        """NoRoom where the database has reached its limit and nothing in it can be made again."""
        if not self.limit_bytes:
            return
        with self._lock:
            if self.clock() - self._looked >= timeouts.DATABASE_SIZE_CACHE_SECS:
                self._used_bytes = self._made()
                self._looked = self.clock()
            used = self._used_bytes
        if used >= self.limit_bytes:
            raise NoRoom(
                f"the database holds {used} bytes, its limit is {self.limit_bytes} and nothing in "
                "it can be made again"
            )

    def is_left(self) -> bool:
        """Whether `check` has nothing to say."""
        try:
            self.check()
        except NoRoom:
            return False
        return True

    def _made(self) -> int:
        """Bytes in use, after what can be made again has given way if it had to."""
        used = self.store.used_bytes()
        if used < self.limit_bytes:
            return used
        gone = self.store.make_room(used - int(self.limit_bytes * (1 - MARGIN)))
        if gone.preparations or gone.blobs:
            log.info(
                "room made in the database: %d preparations and %d files of %d bytes are gone",
                gone.preparations, gone.blobs, gone.blob_bytes,
            )  # fmt: skip
        return self.store.used_bytes()
