"""Functions with which a helper process starts: take over the pipes, end with the parent, limit the
memory."""

from __future__ import annotations

import os
import resource
import select

from . import linux

MEMORY_BYTES = 4 << 30
"""Bytes of memory that a helper may use in addition to its memory at the start."""


def end_with(lifeline: int) -> None:
    """End this process when the other end of `lifeline` is closed, even during a compilation.
    `lifeline` is a descriptor."""
    poller = select.poll()
    poller.register(lifeline, 0)
    poller.poll()
    os._exit(1)


def take_over_pipes() -> tuple[int, int]:
    """Return descriptors for reading requests and writing answers. Descriptors 0 and 1 become
    /dev/null."""
    requests, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    return requests, answers


def limit_memory() -> None:
    """Limit this process to `MEMORY_BYTES` more memory, and disable core dumps."""
    linux.limit_address_space(linux.address_space_bytes() + MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
