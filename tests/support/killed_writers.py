"""A fork that is killed before its n-th SQL statement."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import alembic.command  # noqa: F401 (loaded once, not in every fork)
from sqlalchemy import event
from sqlalchemy.engine import Engine


def dies_at(statement: int, work: Callable[[], object]) -> bool:
    """Whether a fork of this process, which does `work`, was killed before SQL statement number
    `statement` (commits count) or got through."""
    child = os.fork()
    if child == 0:
        left = statement

        def count(*_: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        event.listen(Engine, "before_cursor_execute", count)
        event.listen(Engine, "commit", count)
        work()
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
