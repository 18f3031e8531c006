"""A database in a SQLite file, and everything specific to SQLite.

Use of the file (docs/database.md gives the reasons):

* WAL and `synchronous=FULL`: an acknowledged COMMIT survives `kill -9` and power loss.
* Writers begin with `BEGIN IMMEDIATE`: they wait for the lock at the start, and do not fail later.
* No connection checkpoints automatically (`wal_autocheckpoint=0`). SQLite 3.7.0 to 3.51.2 can
  corrupt a database when one connection resets the log while another writes or checkpoints
  ("WAL-reset bug", fixed in 3.51.3), and many Pythons are built with such a SQLite. So only
  `SqliteDatabase.checkpoint` copies the log: its process holds the lock file, and a second
  connection excludes all writers. The only exception is SQLite's own checkpoint when the last
  connection to the file closes.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from ..errors import (
    StoreBroken,
    StoreBusy,
    StoreDenied,
    StoreError,
    StoreFull,
)
from .changes import ChangeCounter
from .engine import Database
from .locks import FileLock

_BROKEN = ("not a database", "malformed", "disk image", "unsupported file format", "encrypted")
_BUSY = ("database is locked", "database table is locked", "database schema is locked")
_DENIED = ("unable to open database file",)
_READ_ONLY = ("readonly database",)
_FULL = ("disk is full",)

CHECKPOINT_BYTES = 16 * 1024 * 1024

log = logging.getLogger("tilewright.db")


class SqliteDatabase(Database):
    """One SQLite file. A lock serialises the writers of this process, because SQLite's back-off
    would let each of them sleep for up to 0.1 s."""

    path: Path

    def __init__(self, path: Path, *, timeout_secs: float, foreign_keys: bool = True) -> None:
        super().__init__(
            _sqlite_engine(path, timeout_secs, foreign_keys), timeout_secs=timeout_secs
        )
        self.path = path
        self.name = str(path)
        self.url = f"sqlite:///{str(path).replace('%', '%25').replace('?', '%3F')}"
        self.lock = FileLock(path)
        self._changes = ChangeCounter(path)
        self._folding = threading.Lock()
        self._immediate = self.engine.execution_options(immediate=True)
        self._turn = threading.Lock()

    @property
    def _writer(self) -> Engine:
        return self._immediate

    @contextmanager
    def writing(self) -> Iterator[Session]:
        self.refuse_forks()
        if not self._turn.acquire(timeout=self.timeout_secs):
            raise StoreBusy(
                f"database {self.name}: other writers of this process held it for "
                f"{self.timeout_secs:g} s; try again"
            )
        try:
            with super().writing() as session:
                yield session
        finally:
            self._turn.release()

    @contextmanager
    def standing_still(self) -> Iterator[Session]:
        with self.writing() as session:
            yield session

    @contextmanager
    def outside_transactions(self) -> Iterator[Connection]:
        """A connection without transactions, for PRAGMAs."""
        engine = self._own(self.engine).execution_options(no_begin=True)
        with self.translated(), engine.connect() as connection:
            yield connection

    # Implementation of `Database` for SQLite

    def lease_clock(self, session: Session) -> float:
        """Return the seconds since this machine started: all processes share this clock, and it is
        never adjusted."""
        return time.monotonic()

    def serialise(self, session: Session, what: str) -> None:
        """Do nothing: a write transaction excludes all others."""

    def used_bytes(self, session: Session) -> int:
        pages, free, size = (
            int(session.scalar(text(f"PRAGMA {name}")) or 0)
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def disk_bytes(self, session: Session) -> int:
        return self.path.stat().st_size + log_bytes(self.path)

    def damage(self) -> list[str]:
        with self.outside_transactions() as connection:
            found = [str(row[0]) for row in connection.execute(text("PRAGMA quick_check"))]
            dangling = self.dangling(connection)
        return [line for line in found if line != "ok"] + dangling

    def dangling(self, connection: Connection) -> list[str]:
        found = connection.execute(text("PRAGMA foreign_key_check")).all()
        return [f"{row[0]} row {row[1]} refers to a missing {row[2]}" for row in found]

    def for_migration(self) -> SqliteDatabase:
        # Tables are rebuilt under a new name and renamed; with foreign keys enforced, dropping the
        # old table would delete the rows that refer to it. References are checked at the end.
        return SqliteDatabase(self.path, timeout_secs=self.timeout_secs, foreign_keys=False)

    def change_token(self) -> tuple[int, ...] | None:
        return self._changes.token()

    def close(self) -> None:
        self._changes.close()
        super().close()

    def tend(self) -> None:
        if log_bytes(self.path) <= CHECKPOINT_BYTES:
            return
        try:
            self.checkpoint()
        except StoreError as error:  # the write is durable; the log can be copied later
            log.warning("the log of %s was not checkpointed: %s", self.name, error)

    def checkpoint(self) -> bool:
        """Copy the log into the file. Return False if another process or thread does so now."""
        if not self._folding.acquire(blocking=False):
            return False
        try:
            return self._fold()
        finally:
            self._folding.release()

    def _fold(self) -> bool:
        had_it = self.lock.held
        if not self.lock.try_acquire():
            return False
        try:
            with self.connection(immediate=True), self.outside_transactions() as connection:
                # PASSIVE takes no lock that a writer or reader could wait for, so it cannot
                # deadlock with the concurrent write transaction.
                connection.execute(text("PRAGMA wal_checkpoint(PASSIVE)"))
        finally:
            if not had_it:
                self.lock.release()
        return True

    def copy_into(self, file: Path) -> None:
        """Write a consistent copy to the empty `file`, while other connections continue."""
        with self.outside_transactions() as connection:
            connection.execute(text("VACUUM INTO :file"), {"file": str(file)})

    def store_error(self, error: Exception) -> StoreError:
        return store_error(error, self.path)


def store_error(error: Exception, path: Path) -> StoreError:
    """Return the StoreError that explains SQLite's `error` about the file `path`."""
    said = str(getattr(error, "orig", None) or error)
    lower = said.lower()
    if isinstance(error, PoolTimeout) or any(words in lower for words in _BUSY):
        return StoreBusy(
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
            f"database {path}: cannot be written ({said}); `tilewright best` can read it, "
            "other commands need a copy in a folder that you may write"
        )
    if any(words in lower for words in _FULL):
        return StoreFull(
            f"database {path}: no space left ({said}); all reported results are stored, "
            "free some space and run the same command again"
        )
    if any(words in lower for words in _BROKEN):
        return StoreBroken(
            f"database {path}: not a usable SQLite database ({said}); restore a backup, "
            "or move the file away and import an export"
        )
    return StoreError(f"database {path}: {said}")


def log_bytes(path: Path) -> int:
    """Return the size of the write-ahead log of the database at `path`, 0 if there is none."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def make_file(path: Path) -> None:
    """Create an empty file that only its owner may read; SQLite gives its log the same permissions.
    An existing file is unchanged."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreDenied(f"database {path}: cannot be created ({error.strerror})") from error


def _sqlite_engine(path: Path, timeout_secs: float, foreign_keys: bool) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": timeout_secs},
        pool_size=8,
        max_overflow=56,  # for the threads of a web server; idle connections are cheap
        pool_timeout=timeout_secs,
    )
    event.listen(engine, "connect", _on_connect(foreign_keys, timeout_secs))
    event.listen(engine, "begin", _on_begin)
    return engine


def _on_connect(foreign_keys: bool, timeout_secs: float) -> Callable[[Any, Any], None]:
    def set_pragmas(connection: Any, _record: Any) -> None:
        # The driver would begin transactions automatically, too late and never before DDL.
        connection.isolation_level = None
        # Damaged text is decoded, and then fails its row's hash: one row is lost, not all.
        connection.text_factory = partial(str, encoding="utf-8", errors="replace")
        cursor = connection.cursor()
        _keep_a_log(cursor, timeout_secs)
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA wal_autocheckpoint=0")
        cursor.execute(f"PRAGMA foreign_keys={'ON' if foreign_keys else 'OFF'}")
        cursor.close()

    return set_pragmas


def _keep_a_log(cursor: Any, timeout_secs: float) -> None:
    """Put the file into WAL mode, permanently. If several processes do so concurrently, SQLite
    reports "locked" to all but one immediately, without regard to their timeouts; they retry."""
    deadline = time.monotonic() + timeout_secs
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal" and _may_be_ours(cursor):
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if not any(words in str(error) for words in _BUSY) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _may_be_ours(cursor: Any) -> bool:
    """Return whether the file is empty or has our schema; other files stay unchanged."""
    tables = {row[0] for row in cursor.execute("SELECT name FROM sqlite_master")}
    return not tables or "alembic_version" in tables


def _on_begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if not options.get("no_begin"):
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("immediate") else "BEGIN")
