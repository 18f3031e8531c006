"""Log lines of the service: for people on a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys

import structlog

from service.redact import redacted


def _redacted(_logger: object, _method: str, line: structlog.types.EventDict | str) -> str:
    """The whole line, tracebacks included, without secrets."""
    return redacted(str(line))


def configure(*, as_json: bool) -> None:
    """Send every logger of the process to stderr, one line a message."""
    people = sys.stderr.isatty() and not as_json
    shared: list[structlog.types.Processor] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer()
    )
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
