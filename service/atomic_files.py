"""Atomic writes of files, and a lock on a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
"""Errors of file systems that can lock files but not folders (NFS)."""


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to a temporary file in the same folder, which then replaces `path`. It gets the
    permissions of a new file. Raise OSError if that fails."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def folder_lock(folder: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold exclusive access to `folder` among all processes and threads that use this lock.
    `on_wait` is called once if it must wait. Raise OSError if the folder cannot be locked.

    The lock (flock(2)) is on the folder: the kernel releases it when the process ends, no lock file
    remains, and replacing files in the folder does not affect it.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            _lock(descriptor, on_wait)
        except OSError as error:
            if error.errno not in NO_FOLDER_LOCKS:
                raise
            os.close(descriptor)
            name = folder / ".tilewright.writing"
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            _lock(descriptor, on_wait)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, on_wait: Callable[[], None]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        on_wait()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
