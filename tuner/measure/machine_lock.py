"""One measurement at a time on a machine, whoever asks: command line, service or a test."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "tilewright-measure.lock"
_LOOK_SECS = 0.05


def lock_path() -> Path:
    """The lock file of this machine.

    /run/lock is the same for every user and session where it exists; otherwise the user's
    runtime folder or the temporary one, where it carries the user's number.
    """
    shared = Path("/run/lock")
    if os.access(shared, os.W_OK):
        path = shared / _NAME
        if not path.exists() or os.access(path, os.R_OK | os.W_OK):
            return path
    private = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    return private / f"tilewright-measure-{os.getuid()}.lock"


@contextmanager
def machine_lock(path: Path | None = None, patience_secs: float | None = None) -> Iterator[bool]:
    """Hold the machine's lock, waiting for it as long as it takes, or no longer than
    `patience_secs`: whether it is held.

    The kernel gives it back when the holder ends in whatever way. The file stays.
    """
    chosen = lock_path() if path is None else path
    fd = _open(chosen)
    try:
        if patience_secs is None:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield True
        else:
            yield _locked_within(fd, patience_secs)
    finally:
        os.close(fd)


def _locked_within(fd: int, patience_secs: float) -> bool:
    end = time.monotonic() + patience_secs
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_LOOK_SECS)
        else:
            return True


def _open(path: Path) -> int:
    """Open the lock file, made for everybody if this is the first who comes."""
    try:
        # Not O_CREAT at once: in /run/lock the kernel refuses that for another user's file.
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if os.fstat(fd).st_uid == os.getuid():
            os.fchmod(fd, 0o666)
        return fd
