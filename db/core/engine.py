"""Connections and transactions, whichever database is behind them.

`Database` is what the parts of the store work on; `sqlite.py` and `postgres.py` are its two kinds.
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
"""SQLite has a limit on the parameters of a statement."""

T = TypeVar("T")


class CoordinatorLock(Protocol):
    """The lock of a database's coordinator, which may change the schema, lease jobs and do the
    upkeep.

    However its holder ends, the lock is free afterwards.
    """

    @property
    def held(self) -> bool:
        """Whether this object holds the lock, checked anew at each call."""

    def try_acquire(self) -> bool:
        """Take the lock if it is free; True if it is held now."""

    def acquire(self, timeout_secs: float, *, purpose: str) -> None:
        """Take the lock within `timeout_secs`; StoreHeld names its holder."""

    def release(self) -> None:
        """Release the lock; no effect if it is not held."""


class Database(ABC):
    """One database and its pool of connections. Threads may share it; forks may not.

    `name` is for people; `url` opens the database again and may hold a password; `path` is the
    file of a database that is one.
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
        """A session that sees one moment of the database; nothing it does is kept."""
        with self.translated(), Session(self._own(self._reader), autoflush=False) as session:
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
    def standing_still(self) -> Iterator[Session]:
        """A session that reads; where the database can exclude writers, it does."""
        with self.reading() as session:
            yield session

    def read(self, work: Callable[[Session], T]) -> T:
        """What `work` finds in one moment of the database. `work` may be called more than once."""
        with self.reading() as session:
            return work(session)

    def write(self, work: Callable[[Session], T]) -> T:
        """What `work` gives, committed durably, once. `work` is called again from the start only
        when nothing of an earlier attempt was kept."""
        with self.writing() as session:
            return work(session)

    @contextmanager
    def connection(self, *, immediate: bool) -> Iterator[Connection]:
        """A bare transaction, for schema work."""
        engine = self._writer if immediate else self._reader
        with self.translated(), self._own(engine).begin() as connection:
            yield connection

    @property
    def _reader(self) -> Engine:
        return self.engine

    @property
    def _writer(self) -> Engine:
        return self.engine

    # What each kind of database implements

    @abstractmethod
    def lease_clock(self, session: Session) -> float:
        """Seconds on the clock of leases, which all processes share."""

    @abstractmethod
    def serialise(self, session: Session, what: str) -> None:
        """Hold the writers' lock named `what` until the transaction ends."""

    @abstractmethod
    def used_bytes(self, session: Session) -> int:
        """Bytes in use; free pages of the files are not counted."""

    @abstractmethod
    def disk_bytes(self, session: Session) -> int:
        """Bytes of its files, with their logs where the files are ours."""

    @abstractmethod
    def damage(self) -> list[str]:
        """The damage that the database's own check finds; empty when there is none."""

    @abstractmethod
    def dangling(self, connection: Connection) -> list[str]:
        """References to rows that are missing."""

    @abstractmethod
    def for_migration(self) -> Database:
        """The same database, set up for migrations; the caller closes it."""

    def change_token(self) -> tuple[int, ...] | None:
        """A token that equals an earlier one only if nothing was committed in between; None if that
        is unknown."""
        return None

    def tend(self) -> None:  # noqa: B027  # most have none
        """Do the upkeep after a write, if it is due."""

    def fit_numbers(self, connection: Connection) -> None:  # noqa: B027  # SQLite does by itself
        """After rows were copied with their numbers: continue numbering after the last one."""

    def close(self) -> None:
        self.lock.release()
        self.engine.dispose()

    # Errors

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Within the block, a driver's error about an unusable database becomes a StoreError."""
        try:
            yield
        except IntegrityError:
            raise  # a broken constraint is our bug, or the caller explains it
        except DataError as error:  # a NUL in a text, a number beyond a column
            raise RefusedError(f"a value that no database row can hold: {error.orig}") from error
        except (DBAPIError, PoolTimeout) as error:
            raise self.store_error(error) from error
        except UnicodeDecodeError as error:  # the driver, on a damaged name in a schema
            raise StoreBroken(f"database {self.name}: its schema is damaged ({error})") from error

    @abstractmethod
    def store_error(self, error: Exception) -> StoreError:
        """The StoreError that explains the driver's `error`."""

    def _own(self, engine: Engine) -> Engine:
        self.refuse_forks()
        return engine

    def refuse_forks(self) -> None:
        """RuntimeError in a fork of the process that opened the database."""
        if os.getpid() != self._pid:
            raise RuntimeError(
                f"the database was opened by process {self._pid} and used by its fork "
                f"{os.getpid()}: open it again there (a shared handle corrupts SQLite files)"
            )


def insert_ignore(session: Session, table: Any, rows: list[dict[str, Any]]) -> int:
    """Insert the `rows` whose keys are not stored yet; how many were new.

    Both databases can do it; neither spells it as the SQL standard does.
    """
    dialect = import_module(f"sqlalchemy.dialects.{session.get_bind().dialect.name}")
    statement = dialect.insert(_table(table)).on_conflict_do_nothing()
    statement = statement.execution_options(preserve_rowcount=True)
    connection = session.connection()
    return sum(int(connection.execute(statement, row).rowcount) for row in rows)


def changed(result: Any) -> int:
    """How many rows an UPDATE or DELETE touched."""
    assert isinstance(result, CursorResult)
    return int(result.rowcount)


def _table(model: Any) -> Table:
    table = model.__table__
    assert isinstance(table, Table)
    return table
