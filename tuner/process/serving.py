"""What a helper process does before it serves: it takes its pipes over, ends with whoever
started it, and limits its memory."""

from __future__ import annotations

import os
import resource
import select

from . import linux

MEMORY_BYTES = 4 << 30
"""How much more memory than it has at its start a helper may take."""


def end_with(lifeline: int) -> None:
    """End this process when nobody can send it work any more, even in the midst of a compile."""
    poller = select.poll()
    poller.register(lifeline, 0)
    poller.poll()
    os._exit(1)


def take_over_pipes() -> tuple[int, int]:
    """Descriptors to read requests from and to write answers to; 0 and 1 lead nowhere now."""
    requests, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    return requests, answers


def limit_memory() -> None:
    """Let this process take `MEMORY_BYTES` more, or what whoever started it was left, and leave no
    image of itself when it crashes."""
    linux.limit_address_space(linux.address_space_bytes() + MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
