"""Log lines of the service: for people on a terminal, JSON elsewhere.

Lines written within `bound(job_id=...)` or `bound(request_id=...)` carry these fields.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from service.redact import redacted


def _redacted(_logger: object, _method: str, line: structlog.types.EventDict | str) -> str:
    """The whole line, tracebacks included, without secrets."""
    return redacted(str(line))


def configure(*, as_json: bool) -> None:
    """Send every logger of the process to stderr, one line a message."""
    people = sys.stderr.isatty() and not as_json
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer()
    )
    if not people:
        shared.append(structlog.processors.format_exc_info)
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, last, _redacted],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    for chatty in ("uvicorn.error", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # That a connection was cut is told by those who used it; the pool adds a traceback of its own.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)


@contextmanager
def bound(**fields: str) -> Iterator[None]:
    """Add `fields` to every line this thread, or this task, logs within the block."""
    with structlog.contextvars.bound_contextvars(**fields):
        yield


class Flood:
    """Lets `most` lines a second through; the rest are counted, and told when it is over.

    Safe to call from any thread.
    """

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._second = -1
        self._seen = 0
        self._dropped = 0

    def admit(self) -> tuple[bool, int]:
        """Whether to write this line, and how many were left out before it (told once)."""
        with self._lock:
            second = int(self._clock())
            if second != self._second:
                self._second, self._seen = second, 0
            self._seen += 1
            if self._seen > self._most:
                self._dropped += 1
                return False, 0
            dropped, self._dropped = self._dropped, 0
            return True, dropped
