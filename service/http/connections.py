"""Limits on connections: their number, and how long each may be silent.

uvicorn limits requests, not connections. A connection that never completes a request's head stays
open for ever, and without free descriptors asyncio logs each failed accept (410 MB of log in 75 s
from 1,000 half-open connections). Here a new connection replaces the one that has been idle
longest.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tilewright.service import timeouts
from tilewright.service.limits import RequestLimits
from tilewright.service.settings import Settings

log = logging.getLogger("tilewright.connections")

DESCRIPTORS_KEPT_FREE = 200  # for the database, the log, workers, and newly accepted connections
ACCEPTED_AT_ONCE = 50
WAITING = 1024  # the kernel's queue of connections until they are accepted
UNSENT_BYTES = 64 << 10
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class ThrottledWarning:
    """Logs a warning at most once a minute, with the number of omitted warnings."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: float | None = None
        self._unsaid = 0

    def __call__(self, text: str) -> None:
        now = self._clock()
        if self._last is not None and now - self._last < timeouts.CONNECTION_WARNING_SECS:
            self._unsaid += 1
            return
        more = f" ({self._unsaid} more since the last message)" if self._unsaid else ""
        self._last, self._unsaid = now, 0
        log.warning("%s%s", text, more)


class ThrottledLogger(logging.LoggerAdapter[logging.Logger]):
    """uvicorn's logger, throttled, because any client can cause warnings (a malformed request, an
    upgrade)."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__(logger)
        self._throttled_warning = ThrottledWarning()

    @property
    def level(self) -> int:
        return self.logger.level

    def warning(self, msg: object, *arguments: object, **more: Any) -> None:
        self._throttled_warning(str(msg))


THROTTLED_LOGGER = ThrottledLogger(logging.getLogger("uvicorn.error"))


class ConnectionPool:
    """All connections of a server. `idle` has the connections between two requests, the longest
    idle one first."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self.limit = connection_limit(limits.connections)
        self.idle: dict[BoundedProtocol, None] = {}
        self.all: set[BoundedProtocol] = set()
        self.full = ThrottledWarning()

    def enter(self, protocol: BoundedProtocol) -> bool:
        """Count a new connection. Return False if the limit is reached and no connection is
        idle."""
        if len(self.all) >= self.limit:
            self.full(f"{self.limit} connections are open: idle ones are closed for new ones")
            oldest = next(iter(self.idle), None)
            if oldest is None:
                return False
            self.leave(oldest)
            oldest.transport.abort()
        self.all.add(protocol)
        self.idle[protocol] = None
        return True

    def leave(self, protocol: BoundedProtocol) -> None:
        self.all.discard(protocol)
        self.idle.pop(protocol, None)


class BoundedProtocol(H11Protocol):
    """HTTP/1.1 with a time limit for everything that a client can delay.

    `header_secs` limits the head of a request, from its first byte or from the connection.
    `idle_secs` limits the time from a response to the next request. `send_secs` limits the time in
    which a client reads nothing of its response.
    """

    pool: ConnectionPool  # set in the subclass that `protocol_class` makes for one server

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.logger = THROTTLED_LOGGER  # type: ignore[assignment]  # for uvicorn it is a logger
        self._deadline: asyncio.TimerHandle | None = None
        self._head_began = True
        self._sending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's own
        super().connection_made(transport)
        if not self.pool.enter(self):
            transport.abort()
            return
        self._wait(self.pool.limits.header_secs)

    def connection_lost(self, exc: Exception | None) -> None:
        self.pool.leave(self)
        self._stop_waiting()
        self._stop_sending()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._head_began:
            self._head_began = True
            self._wait(self.pool.limits.header_secs)
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()  # which starts a pipelined request
        self._look()
        if not self._busy and not self.transport.is_closing():
            self._head_began = False
            self._wait(self.pool.limits.idle_secs)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_sending()
        self._sending = self.loop.call_later(self.pool.limits.send_secs, self._abort)

    def resume_writing(self) -> None:
        self._stop_sending()
        super().resume_writing()

    @property
    def _busy(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete

    def _look(self) -> None:
        """Stop the idle timer if a request is being processed."""
        if self._busy:
            self._stop_waiting()
            self.pool.idle.pop(self, None)

    def _wait(self, secs: float) -> None:
        self._stop_waiting()
        if self in self.pool.all:
            self.pool.idle.pop(self, None)
            self.pool.idle[self] = None
            self._deadline = self.loop.call_later(secs, self._abort)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _abort(self) -> None:
        self.transport.abort()


class Listener(socket.socket):
    """A listening socket that survives running out of descriptors.

    asyncio would log the failed accept and retry several thousand times a second. Here a reserved
    descriptor is used to accept the connection and close it, so that the client sees a rejection.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._reserve = os.open(os.devnull, os.O_RDONLY)
        self._throttled_warning = ThrottledWarning()

    def listen(self, backlog: int = WAITING, /) -> None:
        # Every connection inherits this limit on the bytes that the kernel buffers for a client
        # that does not read (otherwise megabytes). Bytes in flight do not count, so no client is
        # slowed.
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        # asyncio passes a small backlog, because it accepts that many connections per wake-up.
        super().listen(max(backlog, WAITING))

    def accept(self) -> tuple[socket.socket, Any]:
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            self._throttled_warning(f"a connection is rejected: {error.strerror}")
            self._reject()
            raise BlockingIOError(errno.EAGAIN, "rejected") from error

    def close(self) -> None:
        self._release()
        super().close()

    def _release(self) -> None:
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1

    def _reject(self) -> None:
        self._release()
        try:
            super().accept()[0].close()
        except OSError:
            time.sleep(0.01)  # another thread uses the last descriptor: avoid a busy loop
        with suppress(OSError):
            self._reserve = os.open(os.devnull, os.O_RDONLY)


def options(settings: Settings) -> dict[str, Any]:
    """Return the arguments of `uvicorn.Config` that concern connections."""
    return {
        "http": protocol_class(settings.limits),
        "ws": "none",
        "backlog": ACCEPTED_AT_ONCE,
        "timeout_keep_alive": max(1, int(settings.limits.idle_secs)),
        "proxy_headers": bool(settings.trusted_proxy),
        "forwarded_allow_ips": ",".join(settings.trusted_proxy),
    }


def protocol_class(limits: RequestLimits) -> type[BoundedProtocol]:
    """Return the protocol class of one server, with a separate connection pool."""
    return type("TilewrightProtocol", (BoundedProtocol,), {"pool": ConnectionPool(limits)})


def connection_limit(wanted: int) -> int:
    """Raise the descriptor limit as far as permitted, and return the possible number of
    connections, at most `wanted`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + DESCRIPTORS_KEPT_FREE
    if soft != resource.RLIM_INFINITY and soft < needed:
        more = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            soft = more
        except (OSError, ValueError):
            log.info("no more than %s descriptors may be open", soft)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return max(1, min(wanted, soft - min(DESCRIPTORS_KEPT_FREE, soft // 2)))
