"""A database on a PostgreSQL server, through psycopg 3, and everything specific to PostgreSQL.

* A server that may lose acknowledged commits (`fsync`, `synchronous_commit` or `full_page_writes`
  off) is refused.
* After a dropped connection, a deadlock or a server restart, a call is retried for some seconds. If
  a commit was not acknowledged, the status of the transaction is queried by its number
  (`pg_xact_status`), so a call takes effect once or not at all.
* The coordinator's lock is an advisory lock of a dedicated connection. The server releases it when
  the connection ends.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, LiteralString, TypeVar

import psycopg
from sqlalchemy import Connection, Engine, create_engine, event, func, make_url, select, text
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session
from sqlalchemy.pool import PoolProxiedConnection

from ..errors import (
    StoreBroken,
    StoreBusy,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreHeld,
    StoreMissing,
    StoreUnreachable,
    StoreUnsafe,
)
from .engine import Database
from .location import without_secrets
from .models import Base

log = logging.getLogger("tilewright.db")

T = TypeVar("T")

PATIENCE_SECS = 5.0
"""How long a call is retried before it raises StoreUnreachable."""

_COORDINATOR, _WRITER = 0x711E0001, 0x711E0002  # namespaces of our advisory locks
_RETRY_SECS = 0.02
_LONGEST_PAUSE_SECS = 0.2

_NUMBER = text("SELECT pg_current_xact_id_if_assigned()::text")
_FATE = text("SELECT pg_xact_status(CAST(:number AS xid8))")
_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_CLOCK = text("SELECT extract(epoch FROM clock_timestamp())")
_SAFETY = (
    "SELECT set_config('lock_timeout', %s, false), current_setting('fsync'),"
    " current_setting('synchronous_commit'), current_setting('full_page_writes')"
)
_USED = text(
    "SELECT (SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c"
    " JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = current_schema() AND c.relkind = 'r' AND c.relname <> 'blob')"
    " + (SELECT coalesce(sum(octet_length(data)), 0) FROM blob)"
)
_TRY_LOCK = "SELECT pg_try_advisory_lock(%s, hashtext(current_schema()))"
_HOLDER = text(
    "SELECT coalesce(nullif(a.application_name, ''), 'a client')"
    " FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.classid = :space"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND l.objid::bigint = hashtext(current_schema())::bigint & 4294967295"
)

# SQLSTATEs, by their longest known prefix (Appendix A of PostgreSQL's manual).
_BY_STATE: dict[str, tuple[type[StoreError], str]] = {
    "08": (StoreUnreachable, "the connection to its server was lost"),
    "57P": (StoreUnreachable, "its server is stopping or starting"),
    "25006": (StoreDenied, "it is read-only"),
    "28": (StoreDenied, "its server rejects this user name and password"),
    "3D000": (StoreMissing, "no database has this name; `createdb` creates it"),
    "40": (StoreBusy, "concurrent transactions change the same rows; try again"),
    "42501": (StoreDenied, "this user lacks the permission"),
    "42P01": (StoreBroken, "a table is missing"),
    "53100": (StoreFull, "no space left; all reported results are stored. Free some space"),
    "53": (StoreBusy, "its server has no connection or memory left; try again"),
    "55P03": (StoreBusy, "another process held a lock for too long; try again"),
    "57014": (StoreBusy, "its server aborted a statement that took too long; try again"),
    "58": (StoreBroken, "its server cannot read or write its files"),
    "XX": (StoreBroken, "its server found damaged data"),
}
_CONFLICTS = ("40001", "40P01")
# The error of a connection that was never established has no SQLSTATE.
_BY_WORDS: tuple[tuple[str, str], ...] = (
    ("does not exist", "3D000"),
    ("authentication failed", "28"),
    ("no pg_hba.conf entry", "28"),
    ("too many clients", "53"),
    ("remaining connection slots", "53"),
)


class PostgresDatabase(Database):
    """One database on a server, or one schema in it, selected by `search_path`."""

    def __init__(self, url: str, *, timeout_secs: float) -> None:
        super().__init__(_engine(url, timeout_secs), timeout_secs=timeout_secs)
        self.url = url
        self.name = without_secrets(url)
        self.lock = AdvisoryLock(self)
        self._snapshots = self.engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    @property
    def _reader(self) -> Engine:
        return self._snapshots

    def read(self, work: Callable[[Session], T]) -> T:
        return self.persistently(lambda: super(PostgresDatabase, self).read(work))

    def write(self, work: Callable[[Session], T]) -> T:
        return self.persistently(lambda: self._write_once(work))

    def _write_once(self, work: Callable[[Session], T]) -> T:
        number: str | None = None
        try:
            with (
                self.translated(),
                Session(self._own(self.engine), autoflush=False, expire_on_commit=False) as session,
            ):
                result = work(session)
                session.flush()
                number = session.scalar(_NUMBER)
                session.commit()
        except StoreUnreachable:
            if number is None or not self._took_place(number):
                raise
        return result

    def _took_place(self, number: str) -> bool:
        """Return whether the transaction with this number was committed."""
        deadline = time.monotonic() + PATIENCE_SECS
        while True:
            fate = self.persistently(lambda: self._ask_fate(number))
            if fate != "in progress" or time.monotonic() > deadline:
                return fate == "committed"
            time.sleep(_RETRY_SECS)

    def _ask_fate(self, number: str) -> str | None:
        with self.translated(), self.engine.connect() as connection:
            fate: str | None = connection.scalar(_FATE, {"number": number})
        return fate

    def persistently(self, attempt: Callable[[], T]) -> T:
        """Call `attempt` again while the server is unreachable or transactions conflict."""
        deadline = time.monotonic() + min(PATIENCE_SECS, self.timeout_secs)
        pause_secs = _RETRY_SECS
        while True:
            try:
                return attempt()
            except (StoreUnreachable, _Conflict) as error:
                if time.monotonic() + pause_secs > deadline:
                    raise
                log.info("%s; trying again", error)
            time.sleep(pause_secs)
            pause_secs = min(pause_secs * 2, _LONGEST_PAUSE_SECS)

    # Implementation of `Database` for PostgreSQL

    def lease_clock(self, session: Session) -> float:
        return float(session.execute(_CLOCK).scalar_one())

    def serialise(self, session: Session, what: str) -> None:
        session.execute(
            text("SELECT pg_advisory_xact_lock(:space, hashtext(current_schema() || :what))"),
            {"space": _WRITER, "what": what},
        )

    def used_bytes(self, session: Session) -> int:
        # Of blobs only the contents count, because the space of deleted blobs is reused.
        return int(session.scalar(_USED) or 0)

    def disk_bytes(self, session: Session) -> int:
        return int(session.scalar(text("SELECT pg_database_size(current_database())")) or 0)

    def damage(self) -> list[str]:
        with self.connection(immediate=False) as connection:
            failures = connection.scalar(
                text(
                    "SELECT checksum_failures FROM pg_stat_database"
                    " WHERE datname = current_database()"
                )
            )
        return [f"its server read {failures} pages with wrong checksums"] if failures else []

    def dangling(self, connection: Connection) -> list[str]:
        """Return an empty list: the server enforces references during migrations too."""
        return []

    def for_migration(self) -> PostgresDatabase:
        return PostgresDatabase(self.url, timeout_secs=self.timeout_secs)

    def fit_numbers(self, connection: Connection) -> None:
        for table in Base.metadata.sorted_tables:
            numbered = table.autoincrement_column
            if numbered is None:
                continue
            last = func.max(numbered)
            sequence = func.pg_get_serial_sequence(table.name, numbered.name)
            connection.execute(
                select(func.setval(sequence, func.coalesce(last, 1), last.is_not(None)))
            )

    def store_error(self, error: Exception) -> StoreError:
        if isinstance(error, PoolTimeout):
            return StoreBusy(f"database {self.name}: every connection is in use; try again")
        driver = getattr(error, "orig", None) or error
        said = str(driver).strip().replace("\n", " ")
        state = getattr(driver, "sqlstate", None) or next(
            (state for words, state in _BY_WORDS if words in said), ""
        )
        if state in _CONFLICTS:
            return _Conflict(f"database {self.name}: {_BY_STATE['40'][1]} ({said})")
        for length in range(len(state), 0, -1):
            if state[:length] in _BY_STATE:
                kind, meaning = _BY_STATE[state[:length]]
                return kind(f"database {self.name}: {meaning} ({said})")
        lost = isinstance(error, DBAPIError) and error.connection_invalidated
        if lost or (not state and isinstance(driver, psycopg.OperationalError)):
            return StoreUnreachable(f"database {self.name}: its server does not answer ({said})")
        return StoreError(f"database {self.name}: {said}")


class _Conflict(StoreBusy):
    """The server rolled back the transaction because of a concurrent one; it may be repeated."""


class AdvisoryLock:
    """The coordinator's lock of one schema, held by a dedicated connection."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._session: PoolProxiedConnection | None = None
        self._turn = threading.RLock()

    @property
    def held(self) -> bool:
        """Whether this object holds the lock; it ends with its connection."""
        with self._turn:
            if self._session is None:
                return False
            try:
                self._ask("SELECT 1")
            except psycopg.Error:
                self.release()
                return False
            return True

    def try_acquire(self) -> bool:
        with self._turn:
            if self.held:
                return True
            self._database.refuse_forks()
            return self._database.persistently(self._try_once)

    def _try_once(self) -> bool:
        taken = False
        try:
            with self._database.translated():
                self._session = self._database.engine.raw_connection()
            self._session.detach()  # not pooled: it ends with the lock
            driver: Any = self._session.dbapi_connection
            driver.autocommit = True
            taken = bool(self._ask(_TRY_LOCK, _COORDINATOR))
        except psycopg.Error as error:
            raise self._database.store_error(error) from error
        finally:
            if not taken:
                self.release()
        return taken

    def acquire(self, timeout_secs: float, *, purpose: str) -> None:
        deadline = time.monotonic() + timeout_secs
        while not self.try_acquire():
            if time.monotonic() >= deadline:
                raise StoreHeld(
                    f"cannot {purpose}: {self.holder()} coordinates it; stop that service, or "
                    "use another database"
                )
            time.sleep(_RETRY_SECS)

    def holder(self) -> str:
        """Return the `application_name` of the holder's connection, or "another process"."""
        with self._database.translated(), self._database.engine.connect() as connection:
            found = connection.scalar(_HOLDER, {"space": _COORDINATOR})
        return str(found or "another process")

    def release(self) -> None:
        with self._turn:
            session, self._session = self._session, None
            if session is not None:
                session.close()  # detached: the server ends the session, and the lock with it

    def _ask(self, statement: LiteralString, *values: object) -> Any:
        assert self._session is not None
        driver: Any = self._session.dbapi_connection
        return driver.execute(statement, values).fetchone()[0]


def _engine(url: str, timeout_secs: float) -> Engine:
    try:
        address = make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):  # messages of the driver may quote the password
        raise StoreDenied(f"database {without_secrets(url)}: not a URL of a database") from None
    arguments: dict[str, Any] = {
        # A server created with LANG=C would return text as bytes (its databases are SQL_ASCII).
        "client_encoding": "utf8",
        "connect_timeout": max(2, math.ceil(min(timeout_secs, 10.0))),
        # A lost machine is detected within seconds; the defaults of the kernel take hours.
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        "application_name": f"tilewright {socket.gethostname()}:{os.getpid()}"[:63],
    }
    engine = create_engine(
        address,
        connect_args={k: v for k, v in arguments.items() if k not in address.query},
        pool_size=5,
        max_overflow=15,  # a server allows 100 connections for all processes
        pool_timeout=timeout_secs,
    )
    event.listen(engine, "connect", _on_connect(without_secrets(url), timeout_secs))
    return engine


def _on_connect(name: str, timeout_secs: float) -> Callable[[Any, Any], None]:
    def set_up(connection: Any, _record: Any) -> None:
        connection.autocommit = True
        millis = f"{max(1, round(timeout_secs * 1000))}ms"
        _, *found = connection.execute(_SAFETY, (millis,)).fetchone()
        connection.autocommit = False
        settings = dict(
            zip(("fsync", "synchronous_commit", "full_page_writes"), found, strict=True)
        )
        unsafe = [setting for setting, value in settings.items() if value == "off"]
        if unsafe:
            connection.close()
            raise StoreUnsafe(
                f"database {name}: its server has {unsafe[0]}=off, so a power failure would undo "
                f"acknowledged commits; set {unsafe[0]} to on"
            )

    return set_up
