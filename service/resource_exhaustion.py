"""Detects errors which mean that memory, files or processes have run out.

Such an error can occur anywhere, even while a library is imported. It is not a bug, and a traceback
does not help.
"""

from __future__ import annotations

import errno
import re
import resource
from collections.abc import Iterator
from typing import TypeAlias

from tilewright.schedules.errors import TilewrightError
from tilewright.service.errors import OutOfResources

_Limit: TypeAlias = tuple[str, int, int]

MEMORY: _Limit = ("memory", resource.RLIMIT_AS, 1 << 20)
FILES: _Limit = ("open files", resource.RLIMIT_NOFILE, 1)
PROCESSES: _Limit = ("processes and threads", resource.RLIMIT_NPROC, 1)

BY_ERRNO = {
    errno.ENOMEM: MEMORY,
    errno.EMFILE: FILES,
    errno.ENFILE: FILES,
    errno.EAGAIN: PROCESSES,
}
BY_MESSAGE = {
    "cannot allocate memory": MEMORY,
    "failed to map segment": MEMORY,
    "memoryerror": MEMORY,
    "out of memory": MEMORY,
    "unable to allocate": MEMORY,
    "could not find/load shared object": MEMORY,
    "too many open files": FILES,
    "can't start new thread": PROCESSES,
    "resource temporarily unavailable": PROCESSES,
}
"""Messages of glibc's loader, NumPy, llvmlite and Python that lack the error number."""

_NUMBER = re.compile(r"\[Errno (\d+)\]")

FLAGS = {"memory": "-v", "open files": "-n", "processes and threads": "-u"}


def exhausted_resource(error: BaseException) -> OutOfResources | None:
    """Return an error with the resource that has run out, according to `error` or its causes.
    Return None for any other error."""
    for one in _chain(error):
        found = _limit_of(one)
        if found is not None:
            return _out_of_resources(*found)
    return None


def _limit_of(error: BaseException) -> _Limit | None:
    if isinstance(error, MemoryError):
        return MEMORY
    if isinstance(error, OSError) and error.errno in BY_ERRNO:
        return BY_ERRNO[error.errno]
    if not isinstance(error, OSError | ImportError | RuntimeError | TilewrightError):
        return None
    number = _NUMBER.search(str(error))  # the message may quote an error of another process
    if number is not None and int(number[1]) in BY_ERRNO:
        return BY_ERRNO[int(number[1])]
    if isinstance(error, TilewrightError):
        return None  # other text may be input of the user
    message = str(error).lower()
    return next((limit for words, limit in BY_MESSAGE.items() if words in message), None)


def _out_of_resources(what: str, limit: int, unit: int) -> OutOfResources:
    allowed, _ = resource.getrlimit(limit)
    flag = FLAGS[what]
    if allowed == resource.RLIM_INFINITY:
        return OutOfResources(
            f"this machine does not have enough {what}",
            advice="Close other programs, or use a larger machine.",
        )
    amount = f"{allowed // unit} MiB of {what}" if unit > 1 else f"{allowed} {what}"
    return OutOfResources(
        f"this needs more than the {amount} that this process may have (`ulimit {flag}`)",
        advice=f"Raise the limit: `ulimit {flag} unlimited`, or in the service manager.",
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield `error`, its causes, and the errors during whose handling they were raised."""
    seen: set[int] = set()
    left: BaseException | None = error
    while left is not None and id(left) not in seen:
        yield left
        seen.add(id(left))
        left = left.__cause__ or left.__context__
