"""The start of a helper process: it takes over its pipes, ends with its parent, limits its
memory."""

from __future__ import annotations

import os
import resource
import select

from . import linux

MEMORY_BYTES = 4 << 30
"""Memory that a helper may use beyond that at its start."""


def end_with(lifeline: int) -> None:
    """End this process once the other end of pipe `lifeline` is closed, even during a compile."""
    poller = select.poll()
    poller.register(lifeline, 0)
    poller.poll()
    os._exit(1)


def take_over_pipes() -> tuple[int, int]:
    """Descriptors for reading requests and writing answers; 0 and 1 are /dev/null from now on."""
    requests, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    return requests, answers


def limit_memory() -> None:
    """Limit this process to `MEMORY_BYTES` more memory, or to an inherited lower limit, and disable
    core dumps."""
    linux.limit_address_space(linux.address_space_bytes() + MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
