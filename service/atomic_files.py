"""Files that are written, or replaced, as a whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

NO_FOLDER_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.EOPNOTSUPP)
"""What file systems answer that lock files alone (NFS)."""


def write_whole(path: Path, data: bytes) -> None:
    """Write `data` to `path` through a file beside it, with the rights a new file has. OSError."""
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
def alone_in(folder: Path, waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Be the only one who reads and then writes what `folder` holds, among all processes and
    threads that ask for it. `waiting` is called where another is at it. OSError.

    The lock (flock(2)) is on the folder itself: it ends with its process, whatever happens to it,
    leaves nothing behind, and stays where it is when files in the folder are replaced.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            _lock(descriptor, waiting)
        except OSError as error:
            if error.errno not in NO_FOLDER_LOCKS:
                raise
            os.close(descriptor)
            name = folder / ".tilewright.writing"
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            _lock(descriptor, waiting)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, waiting: Callable[[], None]) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting()
        fcntl.flock(descriptor, fcntl.LOCK_EX)
