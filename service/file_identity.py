"""Detects that the database file was deleted or replaced."""

from __future__ import annotations

import os
from pathlib import Path


class FileIdentity:
    """Identifies a file by device and inode. `path` is None for a database server, which has no
    file. If the file was deleted or replaced, later writes are lost without an error."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._opened = None if path is None else _identity(path)

    def problem(self) -> str:
        """Return what happened to the file, or "" if nothing happened. This costs one system
        call."""
        if self._path is None:
            return ""
        now = _identity(self._path)
        if now == self._opened:
            return ""
        what = "was deleted" if now is None else "was replaced by another"
        return f"the database file {self._path} {what}: restore it, or restart the service"


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
