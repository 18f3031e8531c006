"""The lock file of a SQLite database. Its holder may change the schema and checkpoint the log."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from types import TracebackType

from ..errors import StoreDenied, StoreHeld

_RETRY_SECS = 0.02


class FileLock:
    """An exclusive lock on FILE-lock, which the kernel releases when its holder ends. The file
    contains the process id of the last holder, for messages."""

    def __init__(self, database: Path) -> None:
        self.path = database.with_name(database.name + "-lock")
        self._file: int | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lock; False if the lock file was deleted or replaced,
        because it then excludes no other process."""
        if self._file is None:
            return False
        try:
            return os.path.samestat(os.fstat(self._file), self.path.stat())
        except OSError:
            return False

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; return whether this object holds it. Raise StoreDenied if
        the lock file cannot be opened."""
        if self.held:
            return True
        self.release()
        try:
            file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreDenied(f"cannot open the lock file {self.path}: {error}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
        self._file = file
        return True

    def acquire(self, timeout_secs: float, *, purpose: str) -> None:
        """Acquire the lock. Raise StoreHeld if another process still holds it after
        `timeout_secs`."""
        deadline = time.monotonic() + timeout_secs
        while not self.try_acquire():
            if time.monotonic() >= deadline:
                raise StoreHeld(
                    f"cannot {purpose}: process {self.holder()} holds {self.path}; "
                    "stop that service, or use another database"
                )
            time.sleep(_RETRY_SECS)

    def holder(self) -> str:
        """Return the process id of the last holder, or "unknown"."""
        try:
            return self.path.read_text().strip() or "unknown"
        except OSError:
            return "unknown"

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)  # closing the file releases the lock

    def __enter__(self) -> FileLock:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
