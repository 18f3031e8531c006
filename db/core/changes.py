"""A cheap test of whether a SQLite file has changed since the last test.

`PRAGMA data_version` reads a number from the shared memory of the write-ahead log. The number
changes with every commit of another connection (https://sqlite.org/pragma.html#pragma_data_version).
The connection of this module never writes, so it detects every commit.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path
from urllib.parse import quote


class ChangeCounter:
    """Detects commits to the file at `path`. Threads and forked processes may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._opened = 0
        self._pid = os.getpid()

    def token(self) -> tuple[int, ...] | None:
        """Return a token that equals an earlier token only if nothing was committed in between, or
        None if that is unknown. Never waits for another process."""
        with self._lock:
            try:
                connection = self._own()
                (version,) = connection.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error:
                return None
            return self._pid, self._opened, int(version)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    def _own(self) -> sqlite3.Connection:
        if self._connection is None or self._pid != os.getpid():
            url = f"file:{quote(str(self._path))}?mode=ro"
            self._connection = sqlite3.connect(url, timeout=0.0, uri=True, check_same_thread=False)
            # The numbers of two connections are not comparable.
            self._opened, self._pid = self._opened + 1, os.getpid()
        return self._connection
