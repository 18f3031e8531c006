"""What happens to a file: nobody else may read it, it fills up, is locked, deleted or replaced."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

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
from tilewright.db import Store, open_store
from tilewright.db.errors import StoreBroken, StoreBusy, StoreFull
from tilewright.db.values.job_states import JobState


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "x.sqlite"


def test_only_its_owner_may_read_a_new_database(path: Path) -> None:
    previous = os.umask(0)
    try:
        with open_store(str(path)) as store:
            register(store)
            store.coordinate()
            modes = {p.name: p.stat().st_mode & 0o777 for p in path.parent.iterdir()}
    finally:
        os.umask(previous)
    assert set(modes) == {"x.sqlite", "x.sqlite-wal", "x.sqlite-shm", "x.sqlite-lock"}
    assert set(modes.values()) == {0o600}


def test_a_file_that_is_there_keeps_the_rights_it_has(path: Path) -> None:
    path.touch(0o640)
    path.chmod(0o640)
    open_store(str(path)).close()
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_deleted_lock_is_noticed(path: Path) -> None:
    with open_store(str(path)) as store:
        store.coordinate()
        assert store.coordinates()
        path.with_name("x.sqlite-lock").unlink()
        assert not store.coordinates(), "a deleted lock locks nobody out"
        with open_store(str(path)) as other:
            other.coordinate()
            assert not store.coordinates()


def test_a_full_disk_is_told_and_recovered_from(path: Path) -> None:
    with open_store(str(path)) as store:
        register(store)
        store.add([full(1, 1e-3)])
        engine = database_of(store).engine
        room = [60]

        def limit(connection: Any, *_: Any) -> None:
            connection.execute(f"PRAGMA max_page_count={room[0]}")

        event.listen(engine, "checkout", limit)
        with pytest.raises(StoreFull, match=r"no space left .*all reported results are stored"):
            store.put_blob(bytes(10**6), "x/o")
        assert StoreFull.transient
        assert store.records(WORKLOAD, TARGET.key) == [full(1, 1e-3)], "reading goes on"
        room[0] = 10**6
        store.put_blob(bytes(10**6), "x/o")
        assert promoted(store, full(2, 1e-4))
        assert store.check() == []


def test_a_lock_of_another_process_is_told_and_waited_out(path: Path) -> None:
    with open_store(str(path), timeout_secs=0.1) as store:
        register(store)
        job, _ = submit(store)
        leased = store.lease_job("w", 30)
        assert leased is not None
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        for write in (
            lambda: store.add([a_record()]),
            lambda: store.renew_lease(job.id, 1, 30),
            lambda: submit(store, 1),
        ):
            with pytest.raises(StoreBusy, match="another process holds it"):
                write()
        assert StoreBusy.transient
        assert store.best(WORKLOAD, TARGET.key) is None
        holder.close()
        store.add([a_record()])
        store.finish_job(job.id, 1, JobState.SUCCEEDED)
        assert store.check() == []


def test_upkeep_that_fails_takes_nothing_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.db.core.sqlite.CHECKPOINT_BYTES", 0)
    with open_store(str(path)) as store:
        register(store)
        monkeypatch.setattr("tilewright.db.core.locks.os.open", lambda *_: denied())
        store.add([a_record()])
        assert store.counts().records == 1


def denied() -> int:
    raise PermissionError(13, "Permission denied")


def test_writers_of_one_process_wait_for_one_another(path: Path) -> None:
    with open_store(str(path), timeout_secs=0.05) as store:
        register(store)
        database = database_of(store)
        inside, leave = threading.Event(), threading.Event()

        def hold() -> None:
            with database.writing():
                inside.set()
                leave.wait(60)

        holder = threading.Thread(target=hold)
        holder.start()
        assert inside.wait(60)
        with pytest.raises(StoreBusy, match="other writers of this process"):
            store.add([a_record()])
        leave.set()
        holder.join()
        store.add([a_record()])


def test_leases_go_by_a_clock_that_nobody_sets(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(str(path)) as store:
        submit(store)
        wall = time.time
        monkeypatch.setattr(time, "time", lambda: wall() + 3600)
        assert store.lease_job("killed", 300) is not None
        monkeypatch.undo()
        assert store.lease_job("next", 300) is None
        clock = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: clock() + 300)
        assert store.lease_job("next", 300) is not None


def test_a_restart_of_the_machine_ends_leases(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(str(path)) as store:
        submit(store)
        assert store.lease_job("killed", 30) is not None
        clock = time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: clock() % 1.0 - 2.0)  # it starts again
        assert store.lease_job("next", 30) is not None


def test_a_damaged_moment_spoils_nothing(path: Path) -> None:
    with open_store(str(path)) as store:
        register(store)
        assert promoted(store, full(1, 1e-3))
        name = store.put_blob(b"x", "x/o")
        connection = sqlite3.connect(path, isolation_level=None)
        for table, column in (
            ("blob", "created_at"),
            ("workload", "created_at"),
            ("target", "created_at"),
            ("best", "moved_at"),
            ("best_move", "moved_at"),
        ):
            connection.execute(f"UPDATE {table} SET {column} = 'soon'")
        connection.close()
        assert store.blob(name) is not None
        assert store.workload(WORKLOAD) is not None
        assert store.best(WORKLOAD, TARGET.key) == full(1, 1e-3)
        assert len(store.best_history(WORKLOAD, TARGET.key)) == 1
        assert promoted(store, full(2, 1e-4))
        assert [p.kind for p in store.check()] == ["blob"]


def test_a_backup_is_taken_while_others_write(path: Path) -> None:
    with open_store(str(path)) as store:
        register(store)
        over = threading.Event()
        added: list[str] = []

        def write() -> None:
            for trial in range(1, 10_000):
                store.add([full(trial, 1e-3)])
                added.append(full(trial, 1e-3).key)
                if over.is_set():
                    return

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(3):
                known = list(added)
                copy = path.with_name(f"copy{number}.sqlite")
                store.backup(copy)
                with open_store(str(copy), create=False, upgrade=False) as snapshot:
                    assert snapshot.check(acknowledged=known) == []
        finally:
            over.set()
            writer.join()


def test_a_backup_that_fails_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(str(path)) as store:
        target = path.with_name("folder") / "copy.sqlite"
        target.parent.mkdir()

        def broken(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("tilewright.db.core.files._sync", broken)
        with pytest.raises(StoreFull, match="cannot be written"):
            store.backup(target)
        assert list(target.parent.iterdir()) == []


def test_a_move_that_is_broken_off_leaves_an_empty_database(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_store(str(path)) as store, open_store(str(path) + "2") as other:
        register(store)
        assert promoted(store, full(1, 1e-3))
        with monkeypatch.context() as patch:
            patch.setattr("tilewright.db.whole.copying._RowChecksum.__eq__", lambda *_: False)
            with pytest.raises(StoreBroken, match=r"the copies of .* differ; nothing was copied"):
                store.move_to(other)
        assert empty(other)
        store.coordinate()
        store.move_to(other)
        assert other.best(WORKLOAD, TARGET.key) == full(1, 1e-3)


def empty(store: Store) -> bool:
    return store.counts().records == 0 and store.workload(WORKLOAD) is None
