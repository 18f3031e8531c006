"""When a change of keys shows: a new one works at once, a revoked one ends within a second."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field

import pytest
from fastapi.testclient import TestClient

from tests.support.service.access import a_job, bearer, keyring_of, make_key
from tests.support.service.streams import once_told
from tilewright.db import Store
from tilewright.db.errors import StoreUnreachable
from tilewright.db.values.jobs import StoredKeys
from tilewright.service import timeouts
from tilewright.service.access.keyring import Keyring
from tilewright.service.access.keys import KeyScope
from tilewright.service.errors import NotAuthenticated
from tilewright.service.http.app import create_app
from tilewright.service.settings import Settings


@dataclass
class Clock:
    """Time that passes when somebody sleeps."""

    now: float = 100.0
    slept: list[float] = field(default_factory=list)

    async def sleep(self, secs: float) -> None:
        self.slept.append(secs)
        self.now += secs


def keyring(store: Store, clock: Clock) -> Keyring:
    return Keyring(store, required=True, clock=lambda: clock.now, sleep=clock.sleep)


def code(ring: Keyring, text: str) -> str:
    async def ask() -> str:
        try:
            await ring.principal(text)
        except NotAuthenticated as error:
            return str(error.code)
        return ""

    return asyncio.run(ask())


def count_reads(
    store: Store, clock: Clock, reads: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = store.keys

    def counted() -> StoredKeys:
        reads.append(clock.now)
        return read()

    monkeypatch.setattr(store, "keys", counted)


def test_a_new_key_works_at_once(store: Store) -> None:
    clock = Clock()
    ring = keyring(store, clock)
    old = make_key(store)
    assert code(ring, old) == ""
    clock.now += timeouts.UNKNOWN_KEY_READ_SECS / 5
    new = make_key(store)
    assert code(ring, new) == ""
    assert clock.now - 100.0 <= timeouts.UNKNOWN_KEY_READ_SECS + 0.01, (
        "it waits for its reading, not longer"
    )


def test_a_revoked_key_ends_within_a_second(store: Store) -> None:
    clock = Clock()
    ring = keyring(store, clock)
    text = make_key(store)
    assert code(ring, text) == ""
    store.revoke_key(text.split("_")[1])
    clock.now += timeouts.KEY_REVOCATION_SECS * 0.9
    assert code(ring, text) == "", "what was read a moment ago is believed"
    clock.now += timeouts.KEY_REVOCATION_SECS * 0.2
    assert code(ring, text) == "revoked_key"


def test_known_keys_count_on_while_they_cannot_be_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, tries = Clock(), list[float]()
    ring = keyring(store, clock)
    text = make_key(store)
    assert code(ring, text) == ""

    def away() -> StoredKeys:
        tries.append(clock.now)
        raise StoreUnreachable("the database does not answer")

    with monkeypatch.context() as outage:
        outage.setattr(store, "keys", away)
        clock.now += timeouts.KEYS_WITHOUT_DATABASE_SECS / 2
        for _ in range(5):
            assert code(ring, text) == ""
            clock.now += timeouts.KEY_REVOCATION_SECS / 10
        assert len(tries) == 1, "each may take its time to fail"
        assert code(ring, text[:-4] + "aaaa") == "bad_key"
        with pytest.raises(StoreUnreachable):
            code(ring, f"tw_{'a' * 10}_{text.split('_')[2]}")
        clock.now += timeouts.KEYS_WITHOUT_DATABASE_SECS
        with pytest.raises(StoreUnreachable):
            code(ring, text)
    store.revoke_key(text.split("_")[1])
    assert code(ring, text) == "revoked_key"


def test_a_reading_that_hangs_is_not_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, read = Clock(), store.keys
    begun, goes_on = threading.Event(), threading.Event()
    ring = keyring(store, clock)
    text = make_key(store)
    assert code(ring, text) == ""
    store.revoke_key(text.split("_")[1])
    monkeypatch.setattr(timeouts, "KEY_READ_SECS", 0.05)

    def hangs() -> StoredKeys:
        begun.set()
        assert goes_on.wait(60.0)
        return read()

    monkeypatch.setattr(store, "keys", hangs)

    async def ask() -> str:
        while not begun.is_set():  # a busy machine may give it up before that
            clock.now += 2 * timeouts.KEY_REVOCATION_SECS
            await ring.principal(text)  # as it was known
        goes_on.set()
        while True:  # what was given up is taken all the same once it is there
            try:
                await ring.principal(text)
            except NotAuthenticated as error:
                return str(error.code)
            await asyncio.sleep(0.01)

    assert asyncio.run(asyncio.wait_for(ask(), 60.0)) == "revoked_key"


def test_a_flood_of_invented_keys_reads_four_times_a_second(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = make_key(store)
    invented = [f"tw_{letter * 10}_{text.split('_')[2]}" for letter in "abcdefghij"]
    clock, reads = Clock(), list[float]()
    ring = keyring(store, clock)
    count_reads(store, clock, reads, monkeypatch)
    for one in invented:
        clock.now += 0.001
        assert code(ring, one) == "bad_key"
    assert len(reads) == len(invented), "each after its request, for the key might be new"
    assert clock.now - 100.0 >= timeouts.UNKNOWN_KEY_READ_SECS * (len(reads) - 1)
    assert code(ring, "tw_no-key-at-all") == "bad_key"
    assert len(reads) == len(invented), "what can be no key is not looked for"


def test_invented_keys_that_come_together_are_read_for_together(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = make_key(store)
    clock, reads = Clock(), list[float]()
    ring = keyring(store, clock)
    assert code(ring, text) == ""
    count_reads(store, clock, reads, monkeypatch)
    clock.now += 0.1

    async def ask(letter: str) -> None:
        with pytest.raises(NotAuthenticated):
            await ring.principal(f"tw_{letter * 10}_{text.split('_')[2]}")

    async def all_at_once() -> None:
        await asyncio.gather(*map(ask, "abcdefghij"))

    asyncio.run(all_at_once())
    assert len(reads) == 1


def test_a_stream_ends_with_the_key_it_was_opened_with(store: Store) -> None:
    text = make_key(store, owner="mine", scopes=(KeyScope.READ,))
    job = a_job(store, owner="mine")
    app = create_app(Settings(heartbeat_secs=0.05, preparers=0), store)
    revoking = once_told(app, b"event: state", lambda: store.revoke_key(text.split("_")[1]))
    with TestClient(revoking) as api:
        assert api.get(f"/v1/jobs/{job.id}", headers=bearer(text)).status_code == 200
        keyring_of(app)._fresh_secs = 0.05
        told = api.get(f"/v1/jobs/{job.id}/events", headers=bearer(text))
        assert told.status_code == 200
        assert "event: state" in told.text
        assert "event: done" not in told.text, "the job goes on, the follower does not"
        again = api.get(f"/v1/jobs/{job.id}/events", headers=bearer(text))
        assert (again.status_code, again.json()["code"]) == (401, "revoked_key")
