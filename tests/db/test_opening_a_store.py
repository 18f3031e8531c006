"""Opening: what is made, what is refused and in which words."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from tests.contracts.store_values import (
    OTHER_WORKLOAD,
    TARGET,
    WORKLOAD,
    a_record,
    database_of,
    full,
    promoted,
    register,
    sqlite_of,
)
from tilewright.db import (
    HEAD,
    artefacts_of_record,
    best_record,
    default_url,
    open_store,
    sqlite_path,
)
from tilewright.db.core.sqlite import SqliteDatabase, store_error
from tilewright.db.errors import (
    StoreBroken,
    StoreBusy,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreHeld,
    StoreMissing,
    StoreNewer,
    StoreOlder,
)
from tilewright.db.values.records import ArtefactFile

HAS_NO_PSYCOPG = find_spec("psycopg") is None
Opener = Callable[[Path], object]
OPENERS: list[Opener] = [
    lambda path: open_store(str(path), create=False, timeout_secs=0.1),
    lambda path: best_record(str(path), "w", "t", timeout_secs=0.1),
]
both_ways = pytest.mark.parametrize("opener", OPENERS, ids=["open_store", "best_record"])


def test_a_store_is_made_with_its_folder_and_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "50% full?" / "store.sqlite"
    with open_store(str(path)) as store:
        register(store)
    with open_store(f"sqlite:///{str(path).replace('?', '%3F').replace('%', '%25', 1)}") as store:
        assert store.path == path
        assert store.workload(WORKLOAD) is not None
        assert store.check() == []
    assert best_record(str(path), "w", "t") is None


@both_ways
def test_a_missing_database_is_not_made_unasked(tmp_path: Path, opener: Opener) -> None:
    with pytest.raises(StoreMissing, match=r"does not exist; `tilewright tune` creates it"):
        opener(tmp_path / "none.sqlite")
    assert list(tmp_path.iterdir()) == []


@both_ways
def test_a_place_where_no_database_can_be(tmp_path: Path, opener: Opener) -> None:
    with pytest.raises(StoreDenied, match="this is a folder; name a file in it"):
        opener(tmp_path)
    with pytest.raises(StoreDenied, match=r"cannot be opened .*; check that you may read it"):
        opener(tmp_path / ("a" * 300))


def test_an_empty_file_is_a_database_to_come(tmp_path: Path) -> None:
    """What a process killed before its first statement leaves behind."""
    path = tmp_path / "x.sqlite"
    path.write_bytes(b"")
    with pytest.raises(StoreMissing, match="is empty"):
        best_record(str(path), WORKLOAD, TARGET.key)
    open_store(str(path)).close()
    assert best_record(str(path), WORKLOAD, TARGET.key) is None


def test_a_place_where_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreDenied, match="cannot be created"):
        open_store(str(tmp_path / "file" / "store.sqlite"))
    with pytest.raises(StoreDenied, match="this is a folder"):
        open_store(str(tmp_path))


@pytest.mark.parametrize("url", ["", "sqlite://", "sqlite:///:memory:", ":memory:"])
def test_a_store_is_a_file(url: str) -> None:
    with pytest.raises(StoreError, match="give sqlite:///FILE"):
        sqlite_path(url)


def test_other_databases_are_refused_without_showing_the_password() -> None:
    for url, said in (
        ("mysql://me:hunter2@host/db", "unknown kind of database"),
        ("postgresql://me:hunter2@127.0.0.1:9/db", "does not answer"),
        ("postgresql://me:hunter2@127.0.0.1:many/db", "not a URL of a database"),
        ("postgresql://me:hunter2@127.0.0.1:9/db?password=hunter2&odd=hunter2", "hunter"),
    ):
        with pytest.raises(StoreError) as caught:
            open_store(url, timeout_secs=0.1)
        expected = (said, "needs psycopg") if HAS_NO_PSYCOPG else (said,)
        assert any(words in str(caught.value) for words in expected) or said == "hunter"
        assert "hunter2" not in str(caught.value)


@both_ways
@pytest.mark.parametrize("content", [b"not a database at all " * 100, b"SQLite format 3\0" * 200])
def test_a_file_that_is_no_database(tmp_path: Path, opener: Opener, content: bytes) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    with pytest.raises(StoreBroken, match=r"not a usable (SQLite|tilewright) database"):
        opener(path)
    assert path.read_bytes() == content


@both_ways
def test_a_database_of_another_program(tmp_path: Path, opener: Opener) -> None:
    path = tmp_path / "x.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE cookies (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreBroken, match=r"another program \(cookies\)|not a usable tilewright"):
        opener(path)
    assert path.read_bytes() == before, "the journal mode of a file is its owner's"


@both_ways
def test_a_database_from_a_newer_version(tmp_path: Path, opener: Opener) -> None:
    path = tmp_path / "x.sqlite"
    open_store(str(path)).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = '0999'")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreNewer, match=rf"revision '0999', .* up to '{HEAD}'; use a newer"):
        opener(path)
    assert path.read_bytes() == before


def test_a_damaged_version_table(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    open_store(str(path)).close()
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM alembic_version")
    connection.commit()
    connection.close()
    with pytest.raises(StoreBroken, match="must contain one revision, found 0"):
        open_store(str(path))
    with pytest.raises(StoreBroken, match="alembic_version is empty"):
        best_record(str(path), WORKLOAD, TARGET.key)


def test_an_upgrade_is_only_made_where_allowed(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    path.touch()
    with pytest.raises(StoreOlder, match=r"revision none, .* run `tilewright db upgrade --db "):
        open_store(str(path), upgrade=False)
    open_store(str(path)).close()
    open_store(str(path), upgrade=False).close()


def test_a_held_database_is_waited_for_and_then_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with open_store(str(path), timeout_secs=0.1) as store:
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreHeld, match="another process holds it"):
            register(store)
        assert store.workload(WORKLOAD) is None, "readers do not wait for writers"
        holder.execute("ROLLBACK")
        holder.close()
        register(store)


def test_one_coordinator_a_database(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sqlite")
    with open_store(path, timeout_secs=0.1) as first, open_store(path, timeout_secs=0.1) as second:
        first.coordinate()
        with pytest.raises(StoreHeld, match=f"process {os.getpid()} holds .*-lock; stop that"):
            second.coordinate()
        one, other = sqlite_of(first), sqlite_of(second)
        assert not other.checkpoint(), "that is the coordinator's task"
        assert one.checkpoint()
        first.close()
        second.coordinate()


def test_the_schema_is_not_changed_under_a_coordinator(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with open_store(str(path)) as store:
        store.coordinate()
        for name in sorted(p.name for p in tmp_path.glob("x.sqlite*")):
            assert name.startswith("x.sqlite")
        connection = sqlite3.connect(path)
        connection.executescript("PRAGMA foreign_keys=OFF; DROP TABLE alembic_version;")
        for (table,) in connection.execute(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall():
            connection.execute(f"DROP TABLE {table}")
        connection.close()
        with pytest.raises(StoreHeld, match="cannot upgrade"):
            open_store(str(path), timeout_secs=0.1)


def test_every_connection_is_set_for_durability(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "x.sqlite")) as store:
        found = {}
        names = ("journal_mode", "synchronous", "foreign_keys", "wal_autocheckpoint")
        database = database_of(store)
        assert isinstance(database, SqliteDatabase)
        with database.outside_transactions() as connection:
            for name in names:
                found[name] = connection.execute(text(f"PRAGMA {name}")).scalar()
    # synchronous 2 is FULL: NORMAL acknowledges what a power cut takes back.
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "wal_autocheckpoint": 0,
    }


def test_the_log_is_folded_into_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.db.core.sqlite.CHECKPOINT_BYTES", 200_000)
    log = tmp_path / "x.sqlite-wal"
    with open_store(str(tmp_path / "x.sqlite")) as store:
        register(store)
        largest = 0
        for trial in range(1, 100):
            store.add([full(trial, 1e-3)])
            largest = max(largest, log.stat().st_size)
        assert 200_000 < largest < 300_000, "it is reused from its start after each checkpoint"
        assert store.check() == []
    assert not log.exists(), "the last to close leaves one file"


def test_threads_share_a_store(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "x.sqlite")) as store:
        register(store)

        def work(number: int) -> None:
            for trial in range(5):
                promoted(store, full(number * 10 + trial, 1e-3 / (1 + trial * 8 + number)))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.counts().records == 40
        best = store.best(WORKLOAD, TARGET.key)
        assert best is not None
        assert best.result.run_secs_estimate == pytest.approx(1e-3 / 40)
        assert store.check() == []


def test_a_fork_may_not_use_the_store_of_its_parent(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "x.sqlite")) as store:
        child = os.fork()
        if child == 0:
            try:
                store.counts()
            except RuntimeError as error:
                os._exit(7 if "open it again there" in str(error) else 1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_the_default_is_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert sqlite_path(default_url()) == tmp_path / "tilewright" / "tilewright.sqlite"


def test_best_is_answered_without_sqlalchemy(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    record = full(1, 1e-3)
    with open_store(str(path)) as store:
        register(store)
        assert promoted(store, record)
        assert best_record(str(path), WORKLOAD, TARGET.key) == record, "while it is open"
        files = store.add_artefacts(record.key, [ArtefactFile("object", "neg.o", "x/o", b"x")])
        assert artefacts_of_record(str(path), record.key) == files
        assert artefacts_of_record(str(path), "sha256:none") == []
    code = (
        "import sys\nfrom tilewright import db\n"
        f"record = db.best_record({str(path)!r}, {WORKLOAD!r}, {TARGET.key!r})\n"
        f"[file] = db.artefacts_of_record({str(path)!r}, record.key)\n"
        "print(record.key, sorted({'sqlalchemy', 'alembic', 'numpy'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == f"{record.key} []"


def test_best_is_answered_after_a_kill_and_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.sqlite"
    child = os.fork()
    if child == 0:
        store = open_store(str(path))
        register(store)
        promoted(store, full(1, 1e-3))
        os._exit(0)  # as after a kill: nothing is closed, the log stays
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert path.with_name("x.sqlite-wal").exists()
    assert best_record(str(path), WORKLOAD, TARGET.key) == full(1, 1e-3)
    open_store(str(path)).close()
    assert not path.with_name("x.sqlite-wal").exists()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert best_record(str(path), WORKLOAD, TARGET.key) == full(1, 1e-3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x.sqlite", "x.sqlite-lock"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE record SET estimate_secs = 1e-9",
        "UPDATE best SET record_key = (SELECT key FROM record WHERE verified_level = 'quick')",
        "UPDATE best SET record_key = (SELECT key FROM record WHERE trial = 3)",
        "INSERT INTO withdrawn SELECT key, 'wrong', '' FROM record WHERE trial = 1",
    ],
)
def test_a_misled_pointer_serves_nothing_either_way(tmp_path: Path, change: str) -> None:
    path = tmp_path / "x.sqlite"
    with open_store(str(path)) as store:
        register(store)
        register(store, OTHER_WORKLOAD)
        store.add([a_record(2, 1e-4)])
        store.add([full(3, 1e-4, workload_key=OTHER_WORKLOAD)])
        assert promoted(store, full(1, 1e-3))
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(change)
        connection.close()
        assert store.best(WORKLOAD, TARGET.key) is None
        evidence = store.evidence([(WORKLOAD, TARGET.key)])[WORKLOAD, TARGET.key]
        assert evidence.best() == []
        assert best_record(str(path), WORKLOAD, TARGET.key) is None
        assert store.check() != []


@pytest.mark.parametrize(
    ("said", "expected", "advice"),
    [
        ("database is locked", StoreBusy, "wait for it to end"),
        ("unable to open database file", StoreDenied, "check that its folder exists"),
        ("attempt to write a readonly database", StoreDenied, "a copy in a folder"),
        ("database or disk is full", StoreFull, "all reported results are stored"),
        ("file is not a database", StoreBroken, "restore a backup"),
        ("database disk image is malformed", StoreBroken, "restore a backup"),
    ],
)
def test_what_the_driver_says_is_translated(
    said: str, expected: type[StoreError], advice: str
) -> None:
    error = store_error(OperationalError("SQL", None, sqlite3.OperationalError(said)), Path("f"))
    assert type(error) is expected
    assert said in str(error)
    assert advice in str(error)


def test_an_unknown_name_of_the_package_is_an_attribute_error() -> None:
    from tilewright import db

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        db.__getattr__("nothing")
