"""Log lines of the service: formatted text on a terminal, JSON elsewhere.

Lines that are logged within `bound(job_id=...)` or `bound(request_id=...)` have these fields.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TextIO

import structlog

from tilewright.service import timeouts

HIDDEN = "[hidden]"
_SECRETS = re.compile(
    r"(?P<key>tw_[a-z2-7]{10}_)[a-z2-7]{8,}"  # the id remains, to identify the key
    r"|(?P<bearer>\b[Bb]earer\s+)[\w.~+/=-]{8,}"
    r"|(?P<url>\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@]+(?=@)",
    re.ASCII,
)


def redacted(text: str) -> str:
    """Return `text` without the secrets of keys and the passwords of database URLs."""
    if "tw_" not in text and "earer" not in text and "://" not in text:
        return text
    return _SECRETS.sub(lambda found: next(part for part in found.groups() if part) + HIDDEN, text)


def _redacted(_logger: object, _method: str, line: structlog.types.EventDict | str) -> str:
    """Return the log line without secrets, also in tracebacks."""
    return redacted(str(line))


def configure(*, as_json: bool) -> None:
    """Send every logger of the process to stderr, one line per message."""
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
    handler = QuietHandler(WarningThrottle())
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO)
    for chatty in ("uvicorn.error", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    # Users of a lost connection report it; the pool would add a traceback.
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)


@contextmanager
def bound(**fields: str) -> Iterator[None]:
    """Add `fields` to every line that this thread or task logs within the block."""
    with structlog.contextvars.bound_contextvars(**fields):
        yield


MOST_TEXTS = 5
"""The number of different texts of one kind of warning. Further texts are only counted."""

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


Line = tuple[logging.LogRecord, Context]
"""A log record, and the context with its bound fields."""


@dataclass(slots=True)
class _Kind:
    since: float
    texts: set[str] = field(default_factory=set)
    counted: int = 0
    last: Line | None = None


class WarningThrottle:
    """Limits repeated warnings. The first one is written. While it repeats, one line per `secs`
    seconds has the count in its field `repeated`.

    Two warnings of the same logger and format are repetitions if their texts differ only in
    numbers. After `MOST_TEXTS` different texts, as from many jobs, every further text is a
    repetition. Lines of requests, which `request_log` limits, and lines below a warning are not
    throttled. Thread-safe.
    """

    def __init__(
        self,
        secs: float = timeouts.REPEATED_WARNING_SECS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._secs = secs
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[tuple[str, int, str], _Kind] = {}

    def written(self, record: logging.LogRecord) -> list[Line]:
        """Return the lines to write: counts that are due, and `record` unless it is a
        repetition."""
        line = record, copy_context()
        with self._lock:
            due = self._due()
            if record.levelno < logging.WARNING or hasattr(record, "request_id"):
                return [*due, line]
            key = (record.name, record.levelno, str(record.msg))
            kind = self._kinds.setdefault(key, _Kind(self._clock()))
            error = record.exc_info[1] if record.exc_info else None
            text = _NUMBER.sub("#", f"{record.getMessage()} {error!r}")
            if text not in kind.texts and len(kind.texts) < MOST_TEXTS:
                kind.texts.add(text)
                return [*due, line]
            kind.counted, kind.last = kind.counted + 1, line
            return due

    def _due(self) -> list[Line]:
        """Return lines with the counts that are due, and forget kinds without new repetitions."""
        now = self._clock()
        found: list[Line] = []
        for key, kind in list(self._kinds.items()):
            if now - kind.since < self._secs:
                continue
            if kind.last is None:
                del self._kinds[key]
                continue
            record, where = kind.last
            summary = logging.makeLogRecord(record.__dict__)
            summary.exc_info = summary.exc_text = None
            summary.repeated, summary.within_secs = kind.counted, round(now - kind.since, 1)
            found.append((summary, where))
            kind.since, kind.counted, kind.last = now, 0, None
        return found


class QuietHandler(logging.StreamHandler[TextIO]):
    """Writes to standard error, without repeated warnings."""

    def __init__(self, repeats: WarningThrottle) -> None:
        super().__init__(sys.stderr)
        self._repeats = repeats

    def emit(self, record: logging.LogRecord) -> None:
        for one, where in self._repeats.written(record):
            where.run(super().emit, one)


class LineLimit:
    """A limit of `most` lines per second. Counts the dropped lines. Thread-safe."""

    def __init__(self, most: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._most = most
        self._clock = clock
        self._lock = threading.Lock()
        self._second = -1
        self._seen = 0
        self._dropped = 0

    def admit(self) -> tuple[bool, int]:
        """Return whether to write this line, and how many dropped lines were not reported yet."""
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
