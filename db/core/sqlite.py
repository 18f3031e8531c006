"""A database in a SQLite file, and everything specific to SQLite.

Use of the file (docs/database.md gives the reasons):

* WAL and `synchronous=FULL`: an acknowledged COMMIT survives `kill -9` and power loss.
* Writers begin with `BEGIN IMMEDIATE`: they queue for the lock instead of failing half-way.
* No connection checkpoints automatically (`wal_autocheckpoint=0`). SQLite 3.7.0 to 3.51.2 can
  corrupt a database when one connection resets the log while another writes or checkpoints
  ("WAL-reset bug", fixed in 3.51.3), and many Pythons are built with such a SQLite. So only
  `SqliteDatabase.checkpoint` copies the log, as the one holder of the lock file, while a second
  connection excludes every writer. The one exception is SQLite's own checkpoint when the last
  connection to the file closes: no other connection exists then.
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
    """One SQLite file. Writers of this process wait for one another on a lock here, not in SQLite's
    back-off."""

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
        """A session that is committed durably when the block ends, and rolled back if it raises."""
        self.refuse_forks()
        if not self._turn.acquire(timeout=self.timeout_secs):
            raise StoreBusy(
                f"database {self.name}: other writers of this process kept it for "
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
        """A connection without transactions, for PRAGMAs: each statement takes effect
        separately."""
        engine = self._own(self.engine).execution_options(no_begin=True)
        with self.translated(), engine.connect() as connection:
            yield connection

    # Implementation of `Database` for SQLite

    def lease_clock(self, session: Session) -> float:
        """Return seconds since this machine started: a clock that all its processes share and no
        one sets."""
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
            log.warning("the log of %s was not folded in: %s", self.name, error)

    def checkpoint(self) -> bool:
        """Copy the log into the file; return False if another process or thread is doing so now."""
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


def log_bytes(path: Path) -> int:
    """Return the size of the write-ahead log of the database at `path`, 0 if there is none."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0


def make_file(path: Path) -> None:
    """Create an empty file that only its owner may read; an existing file is unchanged.

    SQLite creates its log and its index with the same permissions.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StoreDenied(f"database {path}: cannot be made ({error.strerror})") from error


def _sqlite_engine(path: Path, timeout_secs: float, foreign_keys: bool) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"timeout": timeout_secs},
        pool_size=8,
        max_overflow=56,  # for a web server's threads; an idle connection costs next to nothing
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
    """Put the file into WAL mode, permanently. If several processes do so concurrently, one
    succeeds; SQLite reports "locked" to the others immediately, whatever their timeout is, so they
    retry here."""
    deadline = time.monotonic() + timeout_secs
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal" and _may_be_ours(cursor):
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if not any(words in str(error) for words in _BUSY) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)


def _may_be_ours(cursor: Any) -> bool:
    """Return whether the file is empty or has our schema. The mode of another program's file is not
    changed."""
    tables = {row[0] for row in cursor.execute("SELECT name FROM sqlite_master")}
    return not tables or "alembic_version" in tables


def _on_begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    if not options.get("no_begin"):
        connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("immediate") else "BEGIN")
