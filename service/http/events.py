"""A job's events as server-sent events.

The stream holds no queue: what is not sent yet is in the database, so a slow reader costs
nothing, and a reader that left resumes with `Last-Event-ID`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import anyio
from fastapi.responses import StreamingResponse
from starlette.types import Message, Send

from service.http.state import ServiceState

log = logging.getLogger("tilewright.http")

SEND_SECS = 30.0
"""How long a reader may take nothing before its connection is given up."""


async def job_events(state: ServiceState, job_id: str, after: int) -> AsyncIterator[bytes]:
    """Every event after event `after`, then new ones as they come, then one `done`.

    A comment each `heartbeat_secs` keeps proxies from closing the connection.
    """
    yield b"retry: 1000\n\n"
    last_sent = anyio.current_time()
    async with state.feeds.of(job_id) as feed:
        while not state.stopping.is_set():
            version = feed.version
            chunk, after = await feed.since(after)
            if chunk:
                yield chunk
                last_sent = anyio.current_time()
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
    """A stream whose reader is given up when it takes nothing for `SEND_SECS`."""

    async def stream_response(self, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            with anyio.fail_after(SEND_SECS):
                await send(message)

        try:
            await super().stream_response(send_in_time)
        except TimeoutError:
            log.warning("an event stream is given up: nothing was read for %g s", SEND_SECS)
