"""Feeds of job events: one poll of the database serves all followers.

While there are followers, one task polls the database for changes. It polls less often if there are
many followers, because it sends the new events to all of them. The events of a job are read and
encoded once for all followers, and stored in a buffer of limited size. A follower whose next event
is no longer in the buffer reads from `History`, whose chunks are shared as well. So a slow reader
costs neither memory nor time, and no reader loses an event.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import anyio
from anyio.to_thread import run_sync

from tilewright.db.errors import StoreError
from tilewright.db.values.jobs import StoredJob
from tilewright.service import timeouts
from tilewright.service.jobs.document import job_document

if TYPE_CHECKING:
    from tilewright.db import Store


BATCH = 128
NEWEST = 2**62
"""A number greater than every event id. A follower that starts here gets only new events."""

KEPT_FRAMES, KEPT_BYTES = 2_000, 1 << 20
HISTORY_BYTES = 8 << 20

END = b"\n\n"
"""The end of an encoded event."""

EventFrames = tuple[bytes, int]
"""Encoded events, and the id of the last one."""


class History:
    """Events from the database in chunks of up to `BATCH` frames. A chunk is cached by the id of
    the event before it. Events never change, and ids only grow, so readers at the same event can
    share a chunk. The least recently used chunks are dropped."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pieces: OrderedDict[tuple[str, int], EventFrames] = OrderedDict()
        self._bytes = 0

    async def after(self, job_id: str, event_id: int) -> EventFrames:
        """Return the chunk after the event, from the cache or the database; empty if there are no
        later events."""
        place = (job_id, event_id)
        if place in self._pieces:
            self._pieces.move_to_end(place)
            return self._pieces[place]
        piece = await run_sync(_read, self._store, job_id, event_id)
        if piece[0]:
            self._keep(place, piece)
        return piece

    def _keep(self, place: tuple[str, int], piece: EventFrames) -> None:
        before, _ = self._pieces.get(place, (b"", 0))
        self._pieces[place] = piece
        self._bytes += len(piece[0]) - len(before)
        while self._bytes > HISTORY_BYTES:
            _, (dropped, _) = self._pieces.popitem(last=False)
            self._bytes -= len(dropped)


class Feed:
    """The new events of one job. `version` increases with every observed change. `newest` returns
    the id of the last observed event of any job."""

    def __init__(
        self, store: Store, job_id: str, history: History, newest: Callable[[], int]
    ) -> None:
        self.version = 0
        self.followers = 0
        self.done: bytes | None = None
        self._store = store
        self._job_id = job_id
        self._history = history
        self._newest = newest
        self._changed = asyncio.Event()
        self._looking, self._arriving = asyncio.Lock(), asyncio.Lock()
        self._job: StoredJob | None = None
        self._job_version = self._read_version = -1
        self._start: int | None = None  # the buffered frames follow this event
        self._last = 0
        self._frames: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._pieces: dict[int, EventFrames] = {}

    def mark_changed(self) -> None:
        """Wake all followers."""
        self.version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed_since(self, version: int, within_secs: float) -> None:
        """Wait for a change after `version`, for at most `within_secs`."""
        if self.version == version and within_secs > 0:
            with anyio.move_on_after(within_secs):
                await self._changed.wait()

    async def is_over(self) -> bool:
        """Return whether the job is finished or does not exist. It is read once per version."""
        async with self._looking:
            job = await self._job_now()
        return job is None or job.done

    async def since(self, after: int) -> EventFrames:
        """Return at most `BATCH` frames after event `after`, and the id of the last one; empty if
        there are none."""
        async with self._arriving:  # simultaneous followers share one read
            if self._is_behind(after):
                piece = await self._history.after(self._job_id, after)
                if piece[0]:
                    return piece
                if self._start is None and after <= self._newest():
                    self._start = self._last = after  # the first follower that needs no history
        await self._read_on()
        if self._is_behind(after):
            return await self._history.after(self._job_id, after)
        if after not in self._pieces:  # most followers are at the same event
            later = takewhile(lambda one: one[0] > after, reversed(self._frames))
            self._pieces[after] = _joined(list(later)[::-1][:BATCH], after)
        return self._pieces[after]

    def _is_behind(self, after: int) -> bool:
        """Return whether the buffer starts after `after`, or has not started. An id greater than
        all others, as after restoring the database, also needs the history."""
        return self._start is None or after < self._start

    async def _job_now(self) -> StoredJob | None:
        if self._job_version != self.version:
            version = self.version
            self._job = await run_sync(self._store.get_job, self._job_id)
            self._job_version = version
        return self._job

    async def _read_on(self) -> None:
        """Read the job's new events, once per version."""
        async with self._looking:
            version = self.version
            if self._read_version == version:
                return
            self._pieces = {}
            # Read the job before its events: if it is finished, no later event can appear.
            job = await self._job_now()
            while self._start is not None:
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


class Feeds:
    """The feeds of all jobs with followers. When `is_stopping` returns True, all followers are
    woken."""

    def __init__(self, store: Store, is_stopping: Callable[[], bool]) -> None:
        self._store = store
        self._is_stopping = is_stopping
        self._history = History(store)
        self._feeds: dict[str, Feed] = {}
        self._poller: asyncio.Task[None] | None = None
        self._seen = 0

    def knows(self, job_id: str) -> bool:
        """Return whether the job has followers, which implies that it exists."""
        return job_id in self._feeds

    @asynccontextmanager
    async def of(self, job_id: str) -> AsyncIterator[Feed]:
        """Yield the job's feed. It is closed after its last follower has left."""
        if self._poller is None or self._poller.done():
            self._feeds.clear()
            self._history = History(self._store)
            # This is before any read of a job, so the poller detects every later change.
            _, self._seen = await run_sync(self._store.changes_since, NEWEST)
        if self._poller is None or self._poller.done():
            self._poller = asyncio.get_running_loop().create_task(self._poll())
        feed = self._feeds.get(job_id)
        if feed is None:
            feed = self._feeds[job_id] = Feed(
                self._store, job_id, self._history, lambda: self._seen
            )
        feed.followers += 1
        try:
            yield feed
        finally:
            feed.followers -= 1
            if not feed.followers and self._feeds.get(job_id) is feed:
                del self._feeds[job_id]

    async def _poll(self) -> None:

        token: object = None
        all_woken = anyio.current_time()
        while True:
            await anyio.sleep(self._pause_secs())
            if not self._feeds:
                return
            if self._is_stopping() or anyio.current_time() - all_woken >= timeouts.FEED_STALE_SECS:
                all_woken = anyio.current_time()
                self._wake(set(self._feeds))
                continue
            now = self._store.change_token()
            if now is not None and now == token:
                continue  # nothing was committed since the last poll
            try:
                changed, self._seen = await run_sync(self._store.changes_since, self._seen)
            except StoreError:
                continue  # the next poll reads the same changes
            token = now
            self._wake(changed)

    def _pause_secs(self) -> float:
        followers = sum(feed.followers for feed in self._feeds.values())
        return min(
            max(timeouts.FEED_POLL_SECS, followers * timeouts.FEED_POLL_SECS_PER_FOLLOWER),
            timeouts.FEED_POLL_MAX_SECS,
        )

    def _wake(self, job_ids: set[str]) -> None:
        for job_id in job_ids & self._feeds.keys():
            self._feeds[job_id].mark_changed()


def _read(store: Store, job_id: str, after: int) -> EventFrames:
    events = store.events_after(job_id, after, BATCH)
    frames = [(event.id, frame_of(event.kind, event.data, event.id)) for event in events]
    return _joined(frames, after)


def _joined(frames: list[tuple[int, bytes]], after: int) -> EventFrames:
    """Return the frames as one chunk; its id is `after` if there are none."""
    return b"".join(frame for _, frame in frames), frames[-1][0] if frames else after


def without_other_tasks(chunk: bytes, task: str) -> bytes:
    """Return the frames of `chunk` that are not about another task than `task`."""
    return b"".join(
        frame + END for frame in chunk.split(END)[:-1] if _task_of(frame) in (None, task)
    )


def _task_of(frame: bytes) -> str | None:
    """Return the name of the task that an encoded event is about; None for the whole job."""
    kind, data = (line.partition(b": ")[2] for line in frame.splitlines()[-2:])
    if kind not in (b"trial", b"task"):
        return None
    document = json.loads(data)
    name = document.get("task") if kind == b"trial" else document["name"]
    return None if name is None else str(name)


def frame_of(kind: str, data: dict[str, Any], event_id: int | None = None) -> bytes:
    """Encode one server-sent event. JSON contains no line break, so `data` is one line."""
    identity = f"id: {event_id}\n" if event_id is not None else ""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return f"{identity}event: {kind}\ndata: {text}\n".encode() + END[1:]
