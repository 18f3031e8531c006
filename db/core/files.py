"""Atomic creation of a database file: it is complete and synced to disk, or absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreDenied, StoreFull


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """A temporary file in the folder of `file`, readable by its owner only. When the block ends, it
    is synced to disk and renamed to `file`; if the block raises, it is deleted.

    Raise StoreDenied if `file` exists or cannot be written, StoreFull if the disk is full.
    """
    file = file.expanduser().absolute()
    if file.exists():
        raise StoreDenied(f"{file}: exists already; name a new file")
    part = file.with_name(f".{file.name}.part")
    try:
        part.unlink(missing_ok=True)
        os.close(os.open(part, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        yield part
        _sync(part)
        part.rename(file)
        _sync(file.parent)
    except OSError as error:
        kind = StoreFull if error.errno == 28 else StoreDenied  # ENOSPC
        raise kind(f"{file}: cannot be written ({error.strerror or error})") from error
    finally:
        for left in (part, *(part.with_name(part.name + tail) for tail in ("-wal", "-shm"))):
            left.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
