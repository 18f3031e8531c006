"""Detects that the database file was deleted or replaced."""

from __future__ import annotations

import os
from pathlib import Path


class FileIdentity:
    """Identifies a file by device and inode; `path` None for a server, which has no file.

    Writes to a deleted or replaced file are lost when the process ends, and the process gets no
    error.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._opened = None if path is None else _identity(path)

    def problem(self) -> str:
        """Return what happened to the file ("" if nothing). Costs one system call."""
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
