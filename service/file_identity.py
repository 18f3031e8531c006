"""Whether the database's file is still the one that was opened."""

from __future__ import annotations

import os
from pathlib import Path


class FileIdentity:
    """Remembers a file by its device and inode. `path` None: nothing to watch (a server).

    What is written to a file that was deleted or replaced is lost when the process ends, and the
    process does not notice by itself.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._opened = None if path is None else _identity(path)

    def trouble(self) -> str:
        """What happened to the file since, "" if nothing. Costs one system call."""
        if self._path is None:
            return ""
        now = _identity(self._path)
        if now == self._opened:
            return ""
        what = "is gone" if now is None else "was replaced by another"
        return f"the database file {self._path} {what}: put it back, or restart the service"


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
