"""The schema's revision: reading it, refusing what we cannot read, and moving it forward."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from .engine import Database
from .errors import StoreBroken
from .locks import FileLock
from .schema import HEAD, refuse_newer

MIGRATIONS = Path(__file__).parent / "migrations"


def read_revision(database: Database) -> str | None:
    """The revision of the schema, None for an empty database.

    StoreBroken for a database of some other program; StoreNewer for a revision this version
    does not know.
    """
    with database.connection(immediate=False) as connection:
        revision = _revision(connection, database.path)
    if revision is not None:
        refuse_newer(database.path, revision)
    return revision


def upgrade(database: Database, lock: FileLock, *, timeout_secs: float) -> None:
    """Bring the schema to HEAD: in one transaction, so it is the old or the new one, never between.

    StoreHeld while a service runs on the database.
    """
    had_it = lock.held
    lock.acquire(timeout_secs, purpose=f"upgrade {database.path}")
    try:
        if read_revision(database) != HEAD:
            _migrate(database.path, timeout_secs)
    finally:
        if not had_it:
            lock.release()


def _migrate(path: Path, timeout_secs: float) -> None:
    from alembic import command
    from alembic.config import Config

    # Tables are rebuilt under a new name and renamed; with foreign keys enforced, dropping the
    # old one would take the rows that refer to it along. They are checked before the commit.
    database = Database(path, timeout_secs=timeout_secs, foreign_keys=False)
    try:
        with database.connection(immediate=True) as connection:
            config = Config()
            config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
            dangling = connection.execute(text("PRAGMA foreign_key_check")).all()
            if dangling:
                raise StoreBroken(
                    f"database {path}: {len(dangling)} rows refer to rows that are missing "
                    f"(first: {tuple(dangling[0])}); it was left as it was"
                )
    finally:
        database.close()


def _revision(connection: Connection, path: Path) -> str | None:
    tables = inspect(connection).get_table_names()
    if not tables:
        return None
    if "alembic_version" not in tables or "best_move" not in tables:
        raise StoreBroken(
            f"database {path}: holds tables of another program ({', '.join(tables[:3])}); "
            "name a file of its own for tilewright"
        )
    found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    if len(found) != 1:
        raise StoreBroken(
            f"database {path}: alembic_version must hold one revision, found {len(found)}"
        )
    return str(found[0])
