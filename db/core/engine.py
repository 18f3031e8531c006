"""Connections and transactions for both kinds of databases.

The parts of the store use `Database`; `sqlite.py` and `postgres.py` implement it.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, CursorResult, Engine, Table
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from ..errors import RefusedError, StoreBroken, StoreError

KEYS_PER_STATEMENT = 500
"""The most keys in one statement; SQLite limits the number of parameters."""

T = TypeVar("T")


class CoordinatorLock(Protocol):
    """The lock of a database's coordinator. Only its holder may change the schema, lease jobs and
    do maintenance. When the holder ends for any reason, the lock is released."""

    @property
    def held(self) -> bool:
        """Whether this object holds the lock; each access checks it again."""

    def try_acquire(self) -> bool:
        """Acquire the lock if it is free; return whether this object holds it."""

    def acquire(self, timeout_secs: float, *, purpose: str) -> None:
        """Acquire the lock. Raise StoreHeld if another process still holds it after
        `timeout_secs`; the message states `purpose` and the holder."""

    def release(self) -> None:
        """Release the lock; no effect if it is not held."""


class Database(ABC):
    """One database and its pool of connections. Threads may share it; forked processes may not.

    `name` identifies the database in messages. `url` may contain a password. `path` is the file of
    a SQLite database, otherwise None.
    """

    name: str
    url: str
    path: Path | None = None
    lock: CoordinatorLock

    def __init__(self, engine: Engine, *, timeout_secs: float) -> None:
        self.engine = engine
        self.timeout_secs = timeout_secs
        self._pid = os.getpid()

    # Transactions

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """A session that reads one snapshot of the database; its changes are discarded."""
        with self.translated(), Session(self._own(self._reader), autoflush=False) as session:
            yield session

    @contextmanager
    def writing(self) -> Iterator[Session]:
        """A session that is committed durably when the block ends, and rolled back if it raises."""
        with (
            self.translated(),
            Session(self._own(self._writer), autoflush=False, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    @contextmanager
    def standing_still(self) -> Iterator[Session]:
        """A read session that excludes writers, if the database supports that."""
        with self.reading() as session:
            yield session

    def read(self, work: Callable[[Session], T]) -> T:
        """Return the result of `work` on one snapshot. `work` may be called more than once."""
        with self.reading() as session:
            return work(session)

    def write(self, work: Callable[[Session], T]) -> T:
        """Run `work` in a transaction, commit it durably, and return its result. `work` is called
        again only if nothing of an earlier attempt was committed."""
        with self.writing() as session:
            return work(session)

    @contextmanager
    def connection(self, *, immediate: bool) -> Iterator[Connection]:
        """A transaction without a session, for the schema; with `immediate`, it may write."""
        engine = self._writer if immediate else self._reader
        with self.translated(), self._own(engine).begin() as connection:
            yield connection

    @property
    def _reader(self) -> Engine:
        return self.engine

    @property
    def _writer(self) -> Engine:
        return self.engine

    # Implemented by each kind of database

    @abstractmethod
    def lease_clock(self, session: Session) -> float:
        """Return seconds on the clock of leases, which all processes share."""

    @abstractmethod
    def serialise(self, session: Session, what: str) -> None:
        """Acquire the writers' lock named `what` until the transaction ends."""

    @abstractmethod
    def used_bytes(self, session: Session) -> int:
        """Return the bytes in use, without free pages of the files."""

    @abstractmethod
    def disk_bytes(self, session: Session) -> int:
        """Return the size of the database's files in bytes, with their logs if the files are
        local."""

    @abstractmethod
    def damage(self) -> list[str]:
        """Return a line for each damage that the check of SQLite or of the server finds."""

    @abstractmethod
    def dangling(self, connection: Connection) -> list[str]:
        """Return a description of each reference to a missing row."""

    @abstractmethod
    def for_migration(self) -> Database:
        """Return the same database, set up for migrations; the caller closes it."""

    def change_token(self) -> tuple[int, ...] | None:
        """Return a token that equals an earlier token only if nothing was committed in between, or
        None if that is unknown."""
        return None

    def tend(self) -> None:  # noqa: B027  # only SQLite needs it
        """Do maintenance after a write if it is due."""

    def fit_numbers(self, connection: Connection) -> None:  # noqa: B027  # automatic in SQLite
        """Let new row ids follow the highest one, after rows were copied with their ids."""

    def close(self) -> None:
        self.lock.release()
        self.engine.dispose()

    # Errors

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Within the block, convert the driver's errors into StoreError or RefusedError."""
        try:
            yield
        except IntegrityError:
            raise  # the caller handles a violated constraint, or it is a bug
        except DataError as error:  # a NUL in a text, a number outside the range of a column
            raise RefusedError(f"a value that no database row can hold: {error.orig}") from error
        except (DBAPIError, PoolTimeout) as error:
            raise self.store_error(error) from error
        except UnicodeDecodeError as error:  # raised by the driver for a damaged name in a schema
            raise StoreBroken(f"database {self.name}: its schema is damaged ({error})") from error

    @abstractmethod
    def store_error(self, error: Exception) -> StoreError:
        """Return the StoreError that explains the driver's `error`."""

    def _own(self, engine: Engine) -> Engine:
        self.refuse_forks()
        return engine

    def refuse_forks(self) -> None:
        """Raise RuntimeError in a fork of the process that opened the database."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"the database was opened by process {self._pid} and used by its fork "
                f"{os.getpid()}: open it again there (a shared handle corrupts SQLite files)"
            )


def insert_ignore(session: Session, table: Any, rows: list[dict[str, Any]]) -> int:
    """Insert the `rows` whose keys are not stored yet; return how many were new.

    Both databases support this, with syntax outside the SQL standard.
    """
    dialect = import_module(f"sqlalchemy.dialects.{session.get_bind().dialect.name}")
    statement = dialect.insert(_table(table)).on_conflict_do_nothing()
    statement = statement.execution_options(preserve_rowcount=True)
    connection = session.connection()
    return sum(int(connection.execute(statement, row).rowcount) for row in rows)


def changed(result: Any) -> int:
    """Return how many rows an UPDATE or DELETE changed."""
    assert isinstance(result, CursorResult)
    return int(result.rowcount)


def _table(model: Any) -> Table:
    table = model.__table__
    assert isinstance(table, Table)
    return table
