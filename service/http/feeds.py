"""Who follows jobs, and what they are sent: one look at the database for all of them.

While somebody follows, one task asks the database some times a second what changed. Events of a job
are read and encoded once, however many follow it, and kept for a while in a row of bounded size;
who is further behind than that reads the database, at its own pace. So a slow reader costs neither
memory nor time, and none misses anything: the database is the truth.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import anyio
from anyio.to_thread import run_sync

from service.jobs.document import job_document

if TYPE_CHECKING:
    from db import Store

POLL_SECS = 0.25
STALE_SECS = 5.0
"""A follower looks for itself this often, should a change have gone unnoticed."""

BATCH = 256
NEWEST = 2**62
"""Later than every event: who asks for what came after it hears of the newest alone."""

KEPT_FRAMES, KEPT_BYTES = 2_000, 1 << 20


class Feed:
    """What is new of one job. `version` grows with every change that was seen."""

    def __init__(self, store: Store, job_id: str) -> None:
        self.version = 0
        self.followers = 0
        self.done: bytes | None = None
        self._store = store
        self._job_id = job_id
        self._changed = asyncio.Event()
        self._reading = asyncio.Lock()
        self._read_version = -1
        self._start: int | None = None
        self._last = 0
        self._frames: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._chunks: dict[int, tuple[bytes, int]] = {}

    def mark_changed(self) -> None:
        """Wake everybody who follows."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed_since(self, version: int, within_secs: float) -> None:
        """Wait for a change later than `version`, for at most so long."""
        if self.version == version and within_secs > 0:
            with anyio.move_on_after(min(within_secs, STALE_SECS)):
                await self._changed.wait()

    async def since(self, after: int) -> tuple[bytes, int]:
        """The frames of the events after event `after` as one chunk, empty if there are none, and
        the id of the last. At most `BATCH` at once."""
        await self._read_on(after)
        if self._start is None or after < self._start:
            events = await run_sync(self._store.events_after, self._job_id, after, BATCH)
            return _chunk(
                [(event.id, frame_of(event.kind, event.data, event.id)) for event in events], after
            )
        if after not in self._chunks:  # most followers are equally far
            later = takewhile(lambda one: one[0] > after, reversed(self._frames))
            self._chunks[after] = _chunk(list(later)[::-1][:BATCH], after)
        return self._chunks[after]

    async def _read_on(self, after: int) -> None:
        """Read what is new of the job, once for each version, whoever comes first."""
        if self._read_version == self.version:
            return
        async with self._reading:
            version = self.version
            if self._read_version == version:
                return
            self._chunks = {}
            if self._start is None:
                self._start = self._last = after
            # The job is read before its events: when it is done, none can come later than these.
            job = await run_sync(self._store.get_job, self._job_id)
            while True:
                events = await run_sync(self._store.events_after, self._job_id, self._last, BATCH)
                for event in events:
                    self._keep(event.id, frame_of(event.kind, event.data, event.id))
                if len(events) < BATCH:
                    break
            if job is not None and job.done:
                self.done = frame_of("done", job_document(job))
            self._read_version = version

    def _keep(self, number: int, frame: bytes) -> None:
        self._frames.append((number, frame))
        self._bytes += len(frame)
        self._last = number
        while len(self._frames) > KEPT_FRAMES or self._bytes > KEPT_BYTES:
            gone, dropped = self._frames.popleft()
            self._bytes -= len(dropped)
            self._start = gone


def _chunk(frames: list[tuple[int, bytes]], after: int) -> tuple[bytes, int]:
    """Frames as one piece, and the id of the last: `after` if there are none."""
    return b"".join(frame for _, frame in frames), frames[-1][0] if frames else after


class Feeds:
    """The feeds of all jobs that somebody follows at this moment. `is_stopping` ends them."""

    def __init__(self, store: Store, is_stopping: Callable[[], bool]) -> None:
        self._store = store
        self._is_stopping = is_stopping
        self._feeds: dict[str, Feed] = {}
        self._poller: asyncio.Task[None] | None = None
        self._seen = 0

    @asynccontextmanager
    async def of(self, job_id: str) -> AsyncIterator[Feed]:
        """The job's feed, for as long as the block lasts."""
        if self._poller is None or self._poller.done():
            self._feeds.clear()
            # From before anybody reads: a change after it is one the poller will see.
            _, self._seen = await run_sync(self._store.changes_since, NEWEST)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.get_running_loop().create_task(self._poll())
        feed = self._feeds.get(job_id)
        if feed is None:
            feed = self._feeds[job_id] = Feed(self._store, job_id)
        feed.followers += 1
        try:
            yield feed
        finally:
            feed.followers -= 1
            if not feed.followers and self._feeds.get(job_id) is feed:
                del self._feeds[job_id]

    async def _poll(self) -> None:
        from db.errors import StoreError

        while True:
            await anyio.sleep(POLL_SECS)
            if not self._feeds:
                return
            if self._is_stopping():
                self._wake(set(self._feeds))
                continue
            try:
                changed, self._seen = await run_sync(self._store.changes_since, self._seen)
            except StoreError:
                continue  # the next look tells it all
            self._wake(changed)

    def _wake(self, job_ids: set[str]) -> None:
        for job_id in job_ids & self._feeds.keys():
            self._feeds[job_id].mark_changed()


def frame_of(kind: str, data: dict[str, Any], event_id: int | None = None) -> bytes:
    """One event on the wire. JSON holds no line break, so `data` is one line."""
    identity = f"id: {event_id}\n" if event_id is not None else ""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return f"{identity}event: {kind}\ndata: {text}\n\n".encode()
