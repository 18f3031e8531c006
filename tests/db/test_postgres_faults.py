"""What only a server can do to us: connections that drop, commits nobody answers, other writers."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

import pytest
from sqlalchemy import text

from tests.contracts.store_values import (
    TARGET,
    WORKLOAD,
    a_record,
    database_of,
    full,
    promoted,
    register,
    submit,
)
from tests.support.postgres import PostgresServer, name_of
from tilewright.db import Store, artefacts_of_record, best_record, open_store
from tilewright.db.errors import (
    RefusedError,
    StoreBroken,
    StoreBusy,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreHeld,
    StoreMissing,
    StoreNewer,
    StoreOlder,
    StoreUnreachable,
    StoreUnsafe,
)
from tilewright.db.values.job_states import JobState
from tilewright.db.values.jobs import JobEvent
from tilewright.db.values.records import ArtefactFile

psycopg = pytest.importorskip("psycopg")

T = TypeVar("T")

DROPS = int(os.environ.get("TILEWRIGHT_TEST_DROPS", "20"))
"""Connections to cut; for more: TILEWRIGHT_TEST_DROPS=500 pytest -k dropped tests/db."""


@pytest.fixture
def url(postgres_server: PostgresServer) -> str:
    return postgres_server.fresh()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url, timeout_secs=5.0) as store:
        register(store)
        yield store


# Opening


@pytest.mark.parametrize("setting", ["fsync", "synchronous_commit", "full_page_writes"])
def test_a_server_that_takes_back_what_it_acknowledged_is_refused(
    postgres_server: PostgresServer, url: str, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if setting == "synchronous_commit":
        postgres_server.execute(f"ALTER DATABASE {name_of(url)} SET {setting} = off")
    else:  # the server's own settings stay on: one that has them off is played
        monkeypatch.setattr(
            "tilewright.db.core.postgres._SAFETY",
            _off(setting, ("fsync", "synchronous_commit", "full_page_writes")),
        )
    with pytest.raises(StoreUnsafe, match=f"has {setting}=off, so a power failure would undo"):
        open_store(url)


def _off(setting: str, names: tuple[str, ...]) -> str:
    values = ", ".join("'off'" if name == setting else "'on'" for name in names)
    return f"SELECT %s::text, {values}"


def test_what_is_not_there_is_told(postgres_server: PostgresServer) -> None:
    with pytest.raises(StoreMissing, match="`createdb` creates it"):
        open_store(postgres_server.url_of("none"))
    empty = postgres_server.empty()
    with pytest.raises(StoreMissing, match="is empty"):
        open_store(empty, create=False)
    with pytest.raises(StoreOlder, match="revision none"):
        open_store(empty, upgrade=False)
    postgres_server.execute("CREATE TABLE cookies (name TEXT)", name_of(empty))
    with pytest.raises(StoreBroken, match=r"another program \(cookies\)"):
        open_store(empty)
    with pytest.raises(StoreUnreachable, match="does not answer"):
        open_store("postgresql://127.0.0.1:9/x", timeout_secs=0.1)
    assert StoreUnreachable.transient
    assert not StoreMissing.transient


def test_a_newer_schema_is_refused(postgres_server: PostgresServer, url: str) -> None:
    postgres_server.execute("UPDATE alembic_version SET version_num = '0999'", name_of(url))
    with pytest.raises(StoreNewer):
        open_store(url)


def test_processes_share_a_database_from_its_first_moment(postgres_server: PostgresServer) -> None:
    url = postgres_server.empty()
    with ThreadPoolExecutor(4) as pool:
        for store in pool.map(lambda _: open_store(url), range(4)):
            assert store.check() == []
            store.close()


def test_the_short_ways_lead_to_a_server_too(url: str, store: Store) -> None:
    assert promoted(store, full(1, 1e-3))
    files = store.add_artefacts(full(1, 1e-3).key, [ArtefactFile("object", "n.o", "x/o", b"x")])
    assert best_record(url, WORKLOAD, TARGET.key) == full(1, 1e-3)
    assert artefacts_of_record(url, full(1, 1e-3).key) == files


def test_values_no_row_can_hold_are_refused(store: Store) -> None:
    for ask in (
        lambda: store.record("a\0b"),
        lambda: store.best("a\0b", TARGET.key),
        lambda: store.put_blob(b"x", "y" * 200),
    ):
        with pytest.raises(RefusedError, match="no database row can hold"):
            ask()
    assert store.check() == []


# Connections that drop


def test_dropped_connections_lose_nothing_and_store_nothing_twice(
    postgres_server: PostgresServer, url: str, store: Store
) -> None:
    """A tuning run whose connections are cut again and again: every acknowledged trial is there
    once, and no caller is told anything but to come back."""
    chance = random.Random(20261122)
    job, _ = submit(store)
    leased = store.lease_job("w", 600)
    assert leased is not None
    over, cuts = threading.Event(), [0]

    def cut() -> None:
        while not over.is_set():
            cuts[0] += postgres_server.cut_connections(name_of(url))
            over.wait(chance.uniform(0.005, 0.06))

    cutter = threading.Thread(target=cut)
    cutter.start()
    acknowledged: list[int] = []
    trial = 0
    try:
        while cuts[0] < DROPS:
            trial += 1
            record = full(trial, 1.0 / trial)
            told = ("trial", {"trial": trial, "record_key": record.key})
            again(partial(store.add, [record]))
            assert again(partial(store.promote, record))
            acknowledged += again(
                partial(
                    store.report_job,
                    job.id,
                    leased.epoch,
                    trials=[(trial, record.key)],
                    events=[told],
                )
            )
            assert again(partial(store.best, WORKLOAD, TARGET.key)) == record
    finally:
        over.set()
        cutter.join()
    again(partial(store.finish_job, job.id, leased.epoch, JobState.SUCCEEDED))
    trials = [e for e in every_event(store, job.id) if e.kind == "trial"]
    assert [e.data["trial"] for e in trials] == list(range(1, trial + 1))
    assert [e.id for e in trials] == acknowledged
    assert store.counts().records == trial
    moves = store.best_history(WORKLOAD, TARGET.key)
    assert [m.version for m in moves] == list(range(1, trial + 1))
    assert store.check(full(t, 1.0 / t).key for t in range(1, trial + 1)) == []


def again(call: Callable[[], T]) -> T:
    """As a caller does who is told to come back: on a slow machine every try may be cut."""
    while True:
        try:
            return call()
        except StoreError as error:
            if not error.transient:
                raise


def every_event(store: Store, job_id: str) -> Iterator[JobEvent]:
    last = 0
    while events := store.events_after(job_id, last, 1000):
        yield from events
        last = events[-1].id


@pytest.mark.parametrize("took_place", [True, False])
def test_a_commit_that_nobody_answered_counts_once(store: Store, took_place: bool) -> None:
    """The connection breaks before or after the server committed; the caller is told neither."""
    job, _ = submit(store)
    store.lease_job("w", 30)
    broken = broken_commits(store, took_place)
    (number,) = store.report_job(job.id, 1, events=[("trial", {"trial": 1})])
    assert next(broken) == 1, "one commit broke"
    trials = [event for event in store.events_after(job.id) if event.kind == "trial"]
    assert [event.id for event in trials] == [number]


def broken_commits(store: Store, took_place: bool) -> Iterator[int]:
    """From now on the first commit breaks its connection; gives how many did."""
    dialect: Any = database_of(store).engine.dialect
    commit: Callable[[Any], None] = dialect.do_commit
    count = [0]

    def once(connection: Any) -> None:
        if count[0] == 0:
            count[0] += 1
            if took_place:
                connection.commit()
            connection.dbapi_connection.close()
            raise psycopg.OperationalError("server closed the connection unexpectedly")
        commit(connection)

    dialect.do_commit = once

    def counted() -> Iterator[int]:
        yield count[0]

    return counted()


def test_a_server_that_stays_away_is_an_error_of_its_own(
    postgres_server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.db.core.postgres.PATIENCE_SECS", 0.1)
    with open_store(url, timeout_secs=0.5) as store:
        register(store)
        name = name_of(url)
        postgres_server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        postgres_server.cut_connections(name)
        for call in (store.counts, lambda: store.add([a_record()])):
            with pytest.raises(StoreError) as caught:
                call()
            assert "postgres@" not in str(caught.value)
        postgres_server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        store.add([a_record()])
        assert store.counts().records == 1, "it recovers by itself"


# Other writers


def test_a_lock_held_for_too_long_is_told(url: str) -> None:
    with open_store(url, timeout_secs=0.2) as store:
        register(store)
        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE record IN ACCESS EXCLUSIVE MODE")
            with pytest.raises(StoreBusy, match="held a lock for too long"):
                store.add([a_record()])
            other.rollback()
        store.add([a_record()])


def test_deadlocks_are_settled(store: Store) -> None:
    """Two calls that wait for one another: one is made again, and nobody is told."""
    database = database_of(store)
    meet = threading.Barrier(2, timeout=60)
    attempts = []

    def work(first: str, second: str) -> Callable[[Any], None]:
        def run(session: Any) -> None:
            attempts.append(first)
            lock = text("SELECT pg_advisory_xact_lock(hashtext(:name))")
            session.execute(lock, {"name": first})
            if len(attempts) <= 2:
                meet.wait()
            session.execute(lock, {"name": second})

        return run

    with ThreadPoolExecutor(2) as pool:
        calls = [
            pool.submit(database.write, work("a", "b")),
            pool.submit(database.write, work("b", "a")),
        ]
        for call in calls:
            call.result(timeout=60)
    assert len(attempts) == 3


def test_each_job_goes_to_one_of_many_workers(url: str, store: Store) -> None:
    jobs = [submit(store, number)[0].id for number in range(24)]

    def work(name: str) -> list[str]:
        with open_store(url) as mine:
            taken = []
            while (job := mine.lease_job(name, 60)) is not None:
                taken.append(job.id)
                mine.finish_job(job.id, job.epoch, JobState.SUCCEEDED)
            return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [job for found in pool.map(work, "abcd") for job in found]
    assert sorted(taken) == sorted(jobs)
    assert store.check() == []


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.CANCELLING])
def test_a_lease_made_after_the_clock_was_read_is_not_taken_over(
    url: str, store: Store, state: JobState
) -> None:
    """Its end lies further ahead of that reading than it is long."""
    job, _ = submit(store)
    readings: list[float] = []

    def clock() -> float:
        readings.append(time.time())
        if len(readings) == 1:
            store.lease_job("quick", 60)
            if state == JobState.CANCELLING:
                store.request_cancel(job.id)
        return readings[-1]

    with open_store(url, lease_clock=clock) as slow:
        assert slow.lease_job("slow", 60) is None
    assert len(readings) > 1
    assert store.renew_lease(job.id, 1, 60).state == state


def test_equal_work_submitted_at_one_moment_is_one_job(url: str, store: Store) -> None:
    def work(number: int) -> tuple[str, str, bool]:
        with open_store(url) as mine:
            job, created = submit(mine, idempotency_key="k")
            other, _ = submit(mine, 1 + number % 2)
            return job.id, other.id, created

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(work, range(12)))
    assert len({one for one, _, _ in found}) == 1
    assert len({other for _, other, _ in found}) == 2
    assert sum(created for _, _, created in found) == 1


def test_a_best_moves_under_many_hands_and_is_never_a_withdrawn_one(url: str, store: Store) -> None:
    records = [full(trial, 1.0 / trial) for trial in range(1, 25)]
    store.add(records)

    def work(number: int) -> None:
        with open_store(url) as mine:
            for record in records[number::4]:
                mine.promote(record)
                if record.trial % 2:
                    mine.withdraw(record.key, "odd")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    best = store.best(WORKLOAD, TARGET.key)
    assert best is not None
    assert best.trial % 2 == 0
    assert store.check() == []


def test_files_of_a_record_given_at_one_moment_are_kept_once(url: str, store: Store) -> None:
    store.add([a_record()])
    files = [ArtefactFile(kind, "n", "x/o", kind.encode()) for kind in ("object", "header")]

    def work(_: int) -> Any:
        with open_store(url) as mine:
            return mine.add_artefacts(a_record().key, files)

    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(work, range(8))
    assert all(other == first for other in others)
    assert store.check() == []


# Clocks and coordinators


def test_leases_go_by_the_clock_of_the_server(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store)
    monkeypatch.setattr(time, "time", lambda: 5.0)  # whatever the clock of this machine says
    leased = store.lease_job("w", 300.0)
    assert leased is not None
    assert store.lease_job("x", 300.0) is None
    store.renew_lease(leased.id, leased.epoch, 0.2)
    deadline = time.monotonic() + 60
    while (taken := store.lease_job("x", 300.0)) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert taken.epoch == 2


def test_a_coordinator_that_was_cut_off_knows(
    postgres_server: PostgresServer, url: str, store: Store
) -> None:
    store.coordinate()
    with open_store(url, timeout_secs=0.1) as other:
        with pytest.raises(StoreHeld, match=r"tilewright \S+:\d+ coordinates it"):
            other.coordinate()
        postgres_server.cut_connections(name_of(url))
        assert not store.coordinates()
        other.coordinate()
        assert other.coordinates()
        with pytest.raises(StoreHeld):
            store.coordinate()


def test_the_schema_is_not_changed_under_a_coordinator(
    postgres_server: PostgresServer, url: str, store: Store
) -> None:
    store.coordinate()
    postgres_server.execute("UPDATE alembic_version SET version_num = '0002'", name_of(url))
    with pytest.raises(StoreHeld, match="cannot upgrade"):
        open_store(url, timeout_secs=0.1)


# What the server says


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("53100", StoreFull),
        ("53300", StoreBusy),
        ("57P03", StoreUnreachable),
        ("08006", StoreUnreachable),
        ("28P01", StoreDenied),
        ("25006", StoreDenied),
        ("XX001", StoreBroken),
        ("58030", StoreBroken),
        ("57014", StoreBusy),
        ("0A000", StoreError),
    ],
)
def test_what_the_server_says_is_translated(
    store: Store, state: str, expected: type[StoreError]
) -> None:
    from tilewright.db.core.postgres import PostgresDatabase

    database = database_of(store)
    assert isinstance(database, PostgresDatabase)
    error = psycopg.errors.lookup(state)("said so")
    found = database.store_error(error)
    assert type(found) is expected
    assert "said so" in str(found)
    assert found.transient == (expected in (StoreFull, StoreBusy, StoreUnreachable))


def test_a_database_of_a_server_made_without_a_language_is_one_as_well(
    postgres_server: PostgresServer,
) -> None:
    """`LANG=C initdb` makes SQL_ASCII databases, whose text the driver would hand out as bytes."""
    name = "test_plain_ascii"
    how = "TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
    postgres_server.execute(f"CREATE DATABASE {name} {how}")
    with open_store(postgres_server.url_of(name)) as store:
        register(store)
        store.add([a_record()])
        assert store.record(a_record().key) == a_record()
        assert store.check() == []
