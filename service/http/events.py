"""A job's events as server-sent events, read from the database.

The stream holds no queue: what is not sent yet is in the database, so a slow reader costs
nothing, and a reader that left resumes with `Last-Event-ID`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
from anyio.to_thread import run_sync

from service.http.state import ServiceState
from service.jobs.document import job_document

BATCH = 256
POLL_SECS = 0.2


async def job_events(state: ServiceState, job_id: str, after: int) -> AsyncIterator[bytes]:
    """Every event after event `after`, then new ones as they come, then one `done`.

    A comment each `heartbeat_secs` keeps proxies from closing the connection.
    """
    store = state.store
    yield b"retry: 1000\n\n"
    last_sent = anyio.current_time()
    while not state.stopping.is_set():
        # The job is read before its events: when it is done, no event can come later than these.
        job = await run_sync(store.get_job, job_id)
        events = await run_sync(store.events_after, job_id, after, BATCH)
        for event in events:
            after = event.id
            yield frame(event.kind, event.data, str(event.id))
            last_sent = anyio.current_time()
        if len(events) == BATCH:
            continue
        if job is None or job.done:
            if job is not None:
                yield frame("done", job_document(job), "")
            return
        if anyio.current_time() - last_sent >= state.settings.heartbeat_secs:
            yield b": still here\n\n"
            last_sent = anyio.current_time()
        await anyio.sleep(POLL_SECS)


def frame(kind: str, data: dict[str, Any], event_id: str) -> bytes:
    """One event on the wire. JSON holds no line break, so `data` is one line."""
    identity = f"id: {event_id}\n" if event_id else ""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return f"{identity}event: {kind}\ndata: {text}\n\n".encode()
