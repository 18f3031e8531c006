"""Creation of a database file that is either complete and synced, readable by its owner only, or
absent."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreDenied, StoreFull


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """A temporary path in the folder of `file`, renamed to `file` when the block ends: synced to
    disk, readable by its owner only. If the block raises, no file is left.

    Raise StoreDenied if `file` exists already or cannot be written.
    """
    file = file.expanduser().absolute()
    if file.exists():
        raise StoreDenied(f"{file}: is there already; name a file that is not")
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
