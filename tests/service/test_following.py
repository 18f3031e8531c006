"""Following jobs costs one look at the database, however many follow, and misses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from db import Store
from db.job_states import JobState
from service.http import feeds as feeds_module
from service.http.app import create_app
from service.http.events import EventStream, job_events
from service.http.feeds import Feeds
from service.http.state import Gate, ServiceState
from service.settings import Settings
from tests.service.test_worker import queued

FOLLOWERS = 50


def note(store: Store, job_id: str, first: int, last: int) -> None:
    """Trial events, without records: nothing here looks at those."""
    job = store.get_job(job_id)
    if job is not None and job.owner is None:
        job = store.lease_job("me", 60.0)
    assert job is not None
    for trial in range(first, last + 1):
        store.append_event(job_id, job.epoch, "trial", {"trial": trial})


def state_of(store: Store) -> ServiceState:
    state: ServiceState = create_app(Settings(heartbeat_secs=60.0), store).state.service
    return state


async def collect(state: ServiceState, job_id: str, after: int = 0) -> list[str]:
    """The events' ids and kinds as they come over the wire."""
    text = b"".join([chunk async for chunk in job_events(state, job_id, after)]).decode()
    return [line for line in text.splitlines() if line.startswith(("id: ", "event: "))]


def finish(store: Store, job_id: str) -> None:
    leased = store.get_job(job_id)
    assert leased is not None
    store.finish_job(job_id, leased.epoch, JobState.SUCCEEDED, result={})


def test_many_followers_read_the_database_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queued(store)
    state = state_of(store)
    reads: list[str] = []

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def read(*arguments: Any) -> Any:
            reads.append(name)
            return call(*arguments)

        return read

    for name in ("get_job", "events_after", "changes_since"):
        monkeypatch.setattr(store, name, counted(name, getattr(store, name)))

    async def follow() -> list[list[str]]:
        followers = [asyncio.create_task(collect(state, job.id)) for _ in range(FOLLOWERS)]
        await asyncio.sleep(0.3)
        await asyncio.to_thread(note, store, job.id, 1, 20)
        await asyncio.sleep(0.3)
        await asyncio.to_thread(finish, store, job.id)
        return await asyncio.gather(*followers)

    told = asyncio.run(follow())
    assert all(one == told[0] for one in told)
    assert told[0].count("event: trial") == 20
    assert told[0][-1] == "event: done"
    own_reads = [name for name in reads if name != "changes_since"]
    assert len(own_reads) < FOLLOWERS, "they share what was read"


def test_a_reader_far_behind_misses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "KEPT_FRAMES", 8)
    monkeypatch.setattr(feeds_module, "BATCH", 5)
    job = queued(store)
    state = state_of(store)

    async def follow() -> list[str]:
        chunks: list[bytes] = []
        async for chunk in job_events(state, job.id, 0):
            chunks.append(chunk)
            if len(chunks) == 2:  # it sleeps while much more happens than is kept
                await asyncio.to_thread(note, store, job.id, 1, 60)
                await asyncio.to_thread(finish, store, job.id)
                await asyncio.sleep(0.3)
        text = b"".join(chunks).decode()
        return [line for line in text.splitlines() if line.startswith('data: {"trial"')]

    told = asyncio.run(follow())
    assert told == [f'data: {{"trial":{n}}}' for n in range(1, 61)]


def test_what_is_kept_for_followers_is_bounded(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeds_module, "KEPT_FRAMES", 10)
    job = queued(store)
    note(store, job.id, 1, 100)

    async def follow() -> int:
        feeds = Feeds(store, lambda: False)
        async with feeds.of(job.id) as feed:
            after, chunk = 0, b"-"
            while chunk:
                chunk, after = await feed.since(after)
            return len(feed._frames)

    assert asyncio.run(follow()) <= 10


def test_a_reader_that_takes_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.http.events.SEND_SECS", 0.05)
    left: list[bool] = []

    async def endless() -> Any:
        try:
            while True:
                yield b"x"
        finally:
            left.append(True)

    async def dead(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(60)

    async def run() -> None:
        stream = endless()
        await asyncio.wait_for(EventStream(Gate(1), stream).stream_response(dead), 10)
        await stream.aclose()

    asyncio.run(run())
    assert left == [True]
