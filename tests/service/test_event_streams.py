"""Following jobs costs one look at the database, however many follow, and misses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from tests.support.service.jobs import queued
from tilewright.db import Store
from tilewright.db.values.job_states import JobState
from tilewright.service.access.keys import ANYBODY
from tilewright.service.errors import TooBusy
from tilewright.service.http import feeds as feeds_module
from tilewright.service.http.app import create_app
from tilewright.service.http.events import EventStream, job_events
from tilewright.service.http.feeds import Feeds
from tilewright.service.http.routes.jobs import read as read_route
from tilewright.service.http.state import ConcurrencyLimit, ServiceState
from tilewright.service.http.wait_time import WaitTime
from tilewright.service.settings import Settings

FOLLOWERS = 50


def note(store: Store, job_id: str, first: int, last: int) -> None:
    """Trial events, without records: nothing here looks at those."""
    job = store.get_job(job_id)
    if job is not None and job.owner is None:
        job = store.lease_job("me", 60.0)
    assert job is not None
    for trial in range(first, last + 1):
        store.report_job(job_id, job.epoch, events=[("trial", {"trial": trial})])


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


def test_those_who_join_late_share_the_past(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds_module, "BATCH", 10)
    job = queued(store)
    note(store, job.id, 1, 100)
    finish(store, job.id)
    state = state_of(store)
    reads: list[int] = []
    read = store.events_after

    def counted(job_id: str, after: int = 0, limit: int = 100) -> Any:
        reads.append(after)
        return read(job_id, after, limit)

    monkeypatch.setattr(store, "events_after", counted)

    async def follow() -> list[list[str]]:
        return await asyncio.gather(*(collect(state, job.id) for _ in range(FOLLOWERS)))

    told = asyncio.run(follow())
    assert all(one == told[0] for one in told)
    assert told[0].count("event: trial") == 100
    assert len(reads) < 20, "each piece once, not once a follower"


def test_an_event_id_of_the_future_harms_no_other_follower(store: Store) -> None:
    job = queued(store)
    note(store, job.id, 1, 3)
    state = state_of(store)

    async def follow() -> tuple[list[str], list[str]]:
        lost = asyncio.create_task(collect(state, job.id, after=10**18))
        await asyncio.sleep(0.1)
        other = asyncio.create_task(collect(state, job.id))
        await asyncio.sleep(0.1)
        await asyncio.to_thread(note, store, job.id, 4, 6)
        await asyncio.to_thread(finish, store, job.id)
        return await asyncio.gather(lost, other)

    lost, other = asyncio.run(follow())
    assert lost == ["event: done"]
    assert other.count("event: trial") == 6


def test_those_who_wait_for_a_job_share_one_look(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = queued(store)
    note(store, job.id, 1, 1)
    app = create_app(Settings(preparers=0), store)
    looks: list[str] = []
    get = store.get_job

    def counted(job_id: str) -> Any:
        looks.append(job_id)
        return get(job_id)

    monkeypatch.setattr(store, "get_job", counted)

    async def wait() -> list[dict[str, Any]]:
        ask = partial(read_route, app.state.service, ANYBODY, WaitTime(), job.id, 20.0)
        waiting = [asyncio.create_task(ask()) for _ in range(FOLLOWERS)]
        for trial in range(2, 5):
            await asyncio.sleep(0.3)
            await asyncio.to_thread(note, store, job.id, trial, trial)
        await asyncio.to_thread(finish, store, job.id)
        return await asyncio.gather(*waiting)

    told = asyncio.run(wait())
    assert all(document["done"] for document in told)
    assert len(looks) < FOLLOWERS + 20, "each reads what it answers, and all share the rest"


def test_the_more_follow_the_less_often_all_are_told(store: Store) -> None:
    feeds = Feeds(store, lambda: False)
    feeds._feeds["a"] = feed = feeds_module.Feed(store, "a", feeds_module.History(store), lambda: 0)
    pauses = []
    for followers in (1, 12, 25, 50, 500):
        feed.followers = followers
        pauses.append(feeds._pause_secs())
    assert pauses == [0.25, 0.25, 0.5, 1.0, 1.0]


def test_a_place_is_taken_only_while_a_stream_is_sent() -> None:
    gate = ConcurrencyLimit(1)

    async def told() -> Any:
        yield b"x"

    async def receive() -> Any:
        await asyncio.sleep(60)

    async def gone(message: Any) -> None:
        raise OSError("the client left")

    async def run() -> None:
        scope = {"type": "http", "asgi": {"spec_version": "2.4"}}
        for _ in range(3):
            never_sent = EventStream(gate, told())
            del never_sent
            with pytest.raises(ClientDisconnect):
                await EventStream(gate, told())(scope, receive, gone)
        assert gate.enter(), "every place was given back"
        with pytest.raises(TooBusy):
            await EventStream(gate, told())(scope, receive, gone)

    asyncio.run(run())


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
    monkeypatch.setattr("tilewright.service.timeouts.EVENT_READER_SECS", 0.05)
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
        await asyncio.wait_for(EventStream(ConcurrencyLimit(1), stream).stream_response(dead), 10)
        await stream.aclose()

    asyncio.run(run())
    assert left == [True]
