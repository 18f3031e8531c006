"""The machine's lock. It allows one measurement at a time, by command line, service or tests.

All users of the machine share this advisory lock, because concurrent measurements would disturb
each other. A process that waits for the lock reports its holder, and can be aborted.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import timeouts

_NAME = "tilewright-measure.lock"
_VARIABLE = "TILEWRIGHT_MEASURE_LOCK"
_COMMAND_CHARS = 80

OnWait = Callable[[str], None]


def lock_path() -> Path:
    """Return the path of the lock file of this machine.

    It is the value of TILEWRIGHT_MEASURE_LOCK if that is set. Otherwise it is in /run/lock if that
    folder exists, because all users and sessions share it. Otherwise it is in the user's runtime
    folder or the temporary folder, and its name contains the user's number.
    """
    named = os.environ.get(_VARIABLE)
    if named:
        return Path(named).absolute()
    shared = Path("/run/lock")
    if os.access(shared, os.W_OK):
        path = shared / _NAME
        if not path.exists() or os.access(path, os.R_OK | os.W_OK):
            return path
    private = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    return private / f"tilewright-measure-{os.getuid()}.lock"


@contextmanager
def machine_lock(
    path: Path | None = None,
    patience_secs: float | None = None,
    *,
    on_wait: OnWait | None = None,
) -> Iterator[bool]:
    """Hold the machine's lock for the block. Yield whether it is held.

    The wait is unlimited, or at most `patience_secs`. During the wait, `on_wait` is called about
    twenty times per second. Its argument is "", and after a second a line about the holder. An
    exception that it raises ends the wait. The system releases the lock when its holder ends. The
    file is never deleted.
    """
    chosen = lock_path() if path is None else path
    if patience_secs is None and on_wait is not None:
        fd = _locked_meanwhile(chosen, on_wait)
    else:
        fd = _open(chosen)
    try:
        if patience_secs is not None:
            yield _locked_within(fd, patience_secs, on_wait)
        else:
            if on_wait is None:
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield True
    finally:
        os.close(fd)


def holder(path: Path) -> str:
    """Return a description of the lock's holder for users: process, user and command, as far as
    they are visible."""
    try:
        held = os.stat(path)
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return "another process"
    wanted = f"{os.major(held.st_dev):02x}:{os.minor(held.st_dev):02x}:{held.st_ino}"
    for words in (line.split() for line in lines):
        # A line is "12: FLOCK ADVISORY WRITE 4711 fe:01:123 0 EOF". A process that waits has "->".
        if "->" not in words and len(words) > 5 and words[5] == wanted:
            return _described(int(words[4]))
    return "another process"


def _described(pid: int) -> str:
    if pid == os.getpid():
        return "another job of this process"
    if pid <= 0:
        return "a process outside this container"
    try:
        folder = Path(f"/proc/{pid}")
        command = (
            folder.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        )
        user = _user_name(folder.stat().st_uid)
    except OSError:
        return f"process {pid}"
    shown = "".join(c if c.isprintable() else "?" for c in command.strip())[:_COMMAND_CHARS]
    return f"process {pid} of {user} ({shown or 'no command line'})"


def _user_name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _locked_meanwhile(path: Path, on_wait: OnWait) -> int:
    """Return a descriptor that holds the lock. `on_wait` is called during the wait, and may raise.

    A thread waits in the kernel's queue, because a process that polls would never get the lock
    before processes in this queue. If the wait was abandoned, the thread releases the lock
    immediately.
    """
    fd = _open(path)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return fd
    except BlockingIOError:
        pass
    waiter = _LockWaiter(fd)
    start = time.monotonic()
    try:
        while not waiter.held.wait(timeouts.LOCK_POLL_SECS):
            late = time.monotonic() - start >= timeouts.LOCK_REPORT_SECS
            on_wait(f"waiting for the machine: held by {holder(path)}" if late else "")
    except BaseException:
        waiter.abandon()
        raise
    return fd


class _LockWaiter:
    """A thread that waits for the lock on `fd`. It closes `fd` if the wait was abandoned."""

    def __init__(self, fd: int) -> None:
        self.held = threading.Event()
        self._fd = fd
        self._abandoned = False
        self._guard = threading.Lock()
        threading.Thread(target=self._wait, name="machine-lock", daemon=True).start()

    def _wait(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        with self._guard:
            self.held.set()
            if self._abandoned:
                os.close(self._fd)

    def abandon(self) -> None:
        with self._guard:
            self._abandoned = True
            if self.held.is_set():
                os.close(self._fd)


def _locked_within(fd: int, patience_secs: float, on_wait: OnWait | None) -> bool:
    end = time.monotonic() + patience_secs
    while True:
        if on_wait is not None:
            on_wait("")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(timeouts.LOCK_POLL_SECS)
        else:
            return True


def _open(path: Path) -> int:
    """Open the lock file, or create it so that all users can write it."""
    try:
        # In /run/lock the kernel refuses O_CREAT for another user's file.
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if os.fstat(fd).st_uid == os.getuid():
            os.fchmod(fd, 0o666)
        return fd
