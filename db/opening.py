"""`open_store`: opens the store at a URL and upgrades its schema to the one of this version."""

from __future__ import annotations

import os
from collections.abc import Callable

from .core.engine import Database
from .core.location import default_url, file_is_there, is_postgres, sqlite_path, without_secrets
from .core.parts import Clock, utc_now
from .core.schema import HEAD, refuse_older
from .core.sqlite import SqliteDatabase, make_file
from .core.upgrade import read_revision
from .core.upgrade import upgrade as upgrade_schema
from .errors import StoreDenied, StoreMissing
from .store import Store

TIMEOUT_SECS = 30.0


def open_store(
    url: str | None = None,
    *,
    create: bool = True,
    upgrade: bool = True,
    timeout_secs: float = TIMEOUT_SECS,
    clock: Clock = utc_now,
    lease_clock: Callable[[], float] | None = None,
    entropy: Callable[[int], bytes] = os.urandom,
) -> Store:
    """Return the store at `url`: `sqlite:///FILE`, a path, or `postgresql://USER@HOST/NAME`
    (`default_url()` for None).

    `create` allows the creation of a missing file, and of the tables in an empty database of a
    server. `upgrade` allows the upgrade of an older schema. `timeout_secs` limits the time for
    which a call waits for another process. `clock`, `lease_clock` and `entropy` are for tests.

    Raise StoreMissing or StoreOlder if `create` or `upgrade` would be needed; StoreDenied if this
    process may not open or write the file; StoreNewer if a newer version made the database;
    StoreBroken if it is not a database of Tilewright; StoreBusy if it is locked for too long;
    StoreUnreachable if no server responds; StoreUnsafe if a server may lose acknowledged commits.
    """
    database = _database(url or default_url(), create=create, timeout_secs=timeout_secs)
    try:
        _prepare(database, may_create=create, may_upgrade=upgrade)
    except BaseException:
        database.close()
        raise
    return Store(database, clock=clock, lease_clock=lease_clock, entropy=entropy)


def _database(url: str, *, create: bool, timeout_secs: float) -> Database:
    if is_postgres(url):
        try:
            # Start-up: most databases are files, and psycopg is an optional extra.
            from .core.postgres import PostgresDatabase
        except ImportError as error:
            raise StoreDenied(
                f"database {without_secrets(url)}: needs psycopg ({error}); install the extra "
                "`postgres`: pip install 'tilewright[postgres]'"
            ) from error
        return PostgresDatabase(url, timeout_secs=timeout_secs)

    path = sqlite_path(url)
    if not file_is_there(path):
        if not create:
            raise StoreMissing(
                f"database {path} does not exist; `tilewright tune` creates it, --db names another"
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreDenied(
                f"database folder {path.parent}: cannot be created ({error})"
            ) from error
        make_file(path)
    return SqliteDatabase(path, timeout_secs=timeout_secs)


def _prepare(database: Database, *, may_create: bool, may_upgrade: bool) -> None:
    revision = read_revision(database)
    if revision == HEAD:
        return
    if revision is None and database.path is None and not may_create:
        raise StoreMissing(f"database {database.name} is empty")
    if not may_upgrade:
        refuse_older(database.name, revision)
    upgrade_schema(database)
