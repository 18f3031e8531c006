"""A job's events as server-sent events.

A stream has no queue: unsent events are in the database. So a slow reader costs nothing, and a
reader that reconnects resumes with `Last-Event-ID`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable

import anyio
from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from tilewright.service import timeouts
from tilewright.service.errors import TooBusy
from tilewright.service.http.feeds import without_other_tasks
from tilewright.service.http.state import ConcurrencyLimit, ServiceState

log = logging.getLogger("tilewright.http")


async def always() -> bool:
    """Return True; used for streams that need no key."""
    return True


async def job_events(
    state: ServiceState,
    job_id: str,
    after: int,
    still_admitted: Callable[[], Awaitable[bool]] = always,
    task: str | None = None,
) -> AsyncGenerator[bytes, None]:
    """Yield every event after event `after`, then new ones as they occur, then one `done`. A
    comment every `heartbeat_secs` keeps proxies from closing the connection. The stream ends when
    `still_admitted` returns False: the key is no longer valid. With a `task`, the events of other
    tasks are left out."""
    yield b"retry: 1000\n\n"
    last_sent = anyio.current_time()
    async with state.feeds.of(job_id) as feed:
        while not state.stopping.is_set() and await still_admitted():
            version = feed.version
            before = after
            chunk, after = await feed.since(after)
            if task is not None:
                chunk = without_other_tasks(chunk, task)
            if chunk:
                yield chunk
                last_sent = anyio.current_time()
            if after != before:
                continue
            if feed.done is not None:
                yield feed.done
                return
            left = last_sent + state.settings.heartbeat_secs - anyio.current_time()
            if left <= 0:
                yield b": still here\n\n"
                last_sent = anyio.current_time()
                left = state.settings.heartbeat_secs
            await feed.changed_since(version, left)


class EventStream(StreamingResponse):
    """A stream that is counted by `gate` while it is sent. It is closed if its reader accepts
    nothing for `EVENT_READER_SECS`. Raise TooBusy before it begins if the limit is reached."""

    media_type = "text/event-stream"

    def __init__(self, gate: ConcurrencyLimit, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._gate = gate
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._gate.enter():
            raise TooBusy(f"{self._gate.limit} event streams are open already")
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._gate.leave()
            await self._events.aclose()

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            with anyio.fail_after(timeouts.EVENT_READER_SECS):
                await send(message)

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            log.warning(
                "an event stream is closed: its reader accepted nothing for %g s",
                timeouts.EVENT_READER_SECS,
            )
