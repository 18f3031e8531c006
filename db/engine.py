"""Connections, transactions, and everything that is particular to SQLite.

How a SQLite database is used (docs/database.md gives the reasons):

* WAL and `synchronous=FULL`: what COMMIT acknowledged survives `kill -9` and power loss.
* Writers begin with `BEGIN IMMEDIATE`: they queue for the lock instead of failing half-way.
* No connection checkpoints by itself (`wal_autocheckpoint=0`): see `checkpoint.py`.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, CursorResult, Engine, Table, create_engine, event, text
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from schedules.record import canonical_bytes

from .errors import StoreBroken, StoreDenied, StoreError, StoreFull, StoreHeld

_BROKEN = ("not a database", "malformed", "disk image", "unsupported file format", "encrypted")
_HELD = ("database is locked", "database table is locked", "database schema is locked")
_DENIED = ("unable to open database file",)
_READ_ONLY = ("readonly database",)
_FULL = ("disk is full",)


class Database:
    """One database file and its pool of connections. Threads may share it; forks may not."""

    def __init__(self, path: Path, *, timeout_secs: float, foreign_keys: bool = True) -> None:
        self.path = path
        self._engine = _sqlite_engine(path, timeout_secs, foreign_keys)
        self._writer = self._engine.execution_options(immediate=True)
        self._pid = os.getpid()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that sees one moment of the database; nothing it does is kept."""
        with self.translated(), Session(self._own(self._engine), autoflush=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session committed, durably, when the block ends, and undone if it raises."""
        with (
            self.translated(),
            Session(self._own(self._writer), autoflush=False, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    @contextmanager
    def connection(self, *, immediate: bool) -> Iterator[Connection]:
        """A bare transaction, for schema work."""
        engine = self._writer if immediate else self._engine
        with self.translated(), self._own(engine).begin() as connection:
            yield connection

    @contextmanager
    def outside_transactions(self) -> Iterator[Connection]:
        """A connection on which each statement stands alone, as PRAGMAs want it."""
        engine = self._own(self._engine).execution_options(no_begin=True)
        with self.translated(), engine.connect() as connection:
            yield connection

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Within the block, what the driver says about an unusable database is a StoreError."""
        try:
            yield
        except IntegrityError:
            raise  # a broken constraint is a bug of ours, or the caller's to explain
        except (DBAPIError, PoolTimeout) as error:
            raise store_error(error, self.path) from error
        except UnicodeDecodeError as error:  # the driver, on a damaged name in a schema
            raise StoreBroken(f"database {self.path}: its schema is damaged ({error})") from error

    def close(self) -> None:
        self._engine.dispose()

    def _own(self, engine: Engine) -> Engine:
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"the database was opened by process {self._pid} and used by its fork "
                f"{os.getpid()}: open it again there (a shared handle corrupts SQLite files)"
            )
        return engine


def store_error(error: Exception, path: Path) -> StoreError:
    """The StoreError that says in our words what the driver's `error` means for `path`."""
    said = str(getattr(error, "orig", None) or error)
    lower = said.lower()
    if isinstance(error, PoolTimeout) or any(words in lower for words in _HELD):
        return StoreHeld(
            f"database {path}: another process holds it ({said}); wait for it to end, "
            f"or find it with `fuser {path}`"
        )
    if any(words in lower for words in _DENIED):
        return StoreDenied(
            f"database {path}: cannot be opened ({said}); check that its folder exists "
            "and that you may write there"
        )
    if any(words in lower for words in _READ_ONLY):
        return StoreDenied(
            f"database {path}: cannot be written ({said}); `tilewright best` reads it as it is, "
            "for anything else copy it to where you may write the file and its folder"
        )
    if any(words in lower for words in _FULL):
        return StoreFull(
            f"database {path}: no room left ({said}); what was reported is stored, "
            "make room and run the same command again"
        )
    if any(words in lower for words in _BROKEN):
        return StoreBroken(
            f"database {path}: not a usable SQLite database ({said}); restore a backup, "
            "or move the file away and import an export"
        )
    return StoreError(f"database {path}: {said}")


def insert_ignore(session: Session, table: Any, rows: list[dict[str, Any]]) -> int:
    """Insert `rows` but those whose key is there already; how many were new.

    Both databases have it, neither spells it as the standard does.
    """
    dialect = import_module(f"sqlalchemy.dialects.{session.get_bind().dialect.name}")
    statement = dialect.insert(_table(table)).on_conflict_do_nothing()
    connection = session.connection()
    return sum(int(connection.execute(statement, row).rowcount) for row in rows)


def changed(result: Any) -> int:
    """How many rows an UPDATE or DELETE touched."""
    assert isinstance(result, CursorResult)
    return int(result.rowcount)


def quick_check(database: Database) -> list[str]:
    """What SQLite finds damaged in its own file and references; empty when it is sound."""
    with database.outside_transactions() as connection:
        found = [str(row[0]) for row in connection.execute(text("PRAGMA quick_check"))]
        dangling = connection.execute(text("PRAGMA foreign_key_check")).all()
    damage = [line for line in found if line != "ok"]
    return damage + [f"{row[0]} row {row[1]} refers to a missing {row[2]}" for row in dangling]


def sqlite_version() -> str:
    """The SQLite library in use, for health reports."""
    import sqlite3

    return sqlite3.sqlite_version


def _table(model: Any) -> Table:
    table = model.__table__
    assert isinstance(table, Table)
    return table


def _sqlite_engine(path: Path, timeout_secs: float, foreign_keys: bool) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": timeout_secs},
        pool_size=8,
        max_overflow=56,  # a web server's threads; an idle connection costs next to nothing
        pool_timeout=timeout_secs,
        json_serializer=lambda value: canonical_bytes(value).decode(),
        json_deserializer=_stored_json,
    )
    event.listen(engine, "connect", _on_connect(foreign_keys, timeout_secs))
    event.listen(engine, "begin", _on_begin)
    return engine


def _stored_json(document: str) -> Any:
    try:
        return json.loads(document)
    except ValueError as error:
        raise StoreBroken(f"a stored document is damaged: {error}") from error


def _on_connect(foreign_keys: bool, timeout_secs: float) -> Callable[[Any, Any], None]:
    def set_pragmas(connection: Any, _record: Any) -> None:
        # The driver would begin transactions by itself, too late and never before DDL.
        connection.isolation_level = None
        # Damaged text still comes out, and then fails its row's hash: one row is lost, not all.
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        cursor = connection.cursor()
        _keep_a_log(cursor, timeout_secs)
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA wal_autocheckpoint=0")
        cursor.execute(f"PRAGMA foreign_keys={'ON' if foreign_keys else 'OFF'}")
        cursor.close()

    return set_pragmas


def _keep_a_log(cursor: Any, timeout_secs: float) -> None:
    """Put the file into WAL mode, for good. Of processes that do so at one moment one succeeds;
    SQLite tells the others at once that the file is locked, whatever their timeout is."""
    deadline = time.monotonic() + timeout_secs
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal" and _may_be_ours(cursor):
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if not any(words in str(error) for words in _HELD) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _may_be_ours(cursor: Any) -> bool:
    """Whether the file is empty or has our schema: another program's keeps the mode it has."""
    tables = {row[0] for row in cursor.execute("SELECT name FROM sqlite_master")}
    return not tables or "alembic_version" in tables


def _on_begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if not options.get("no_begin"):
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("immediate") else "BEGIN")
