"""The queries of `tilewright best` without SQLAlchemy: the best record and its files.

Importing SQLAlchemy takes longer than everything else that `tilewright best` does. This module
reads the same rows through the standard library, checks the same hashes, and raises the same
errors; a test compares its results with the results of `Store`.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from tilewright.schedules.full_checks import FullChecks
from tilewright.schedules.record import TuningRecord
from tilewright.schedules.related import MAX_WORKLOADS, RelatedRecords, StoredModel

from .core.hashes import ARTEFACT, RECORD, as_row, guarded
from .core.location import default_url, file_is_there, is_postgres, sqlite_path
from .core.schema import refuse_newer, refuse_older
from .errors import StoreBroken, StoreBusy, StoreDenied, StoreError, StoreMissing
from .records.rows import IS_BEST, IS_OPEN_CLAIM, artefacts_of, from_row
from .values.records import Artefact

if TYPE_CHECKING:
    from tilewright.schedules.target import Target
    from tilewright.schedules.workload.workload import Workload

    from .store import Store

_REVISION = "SELECT version_num FROM alembic_version"
_TABLES = "SELECT count(*) FROM sqlite_master"
_BEST = (
    f"SELECT record.* FROM best JOIN record ON {IS_BEST}"  # noqa: S608  # our own condition
    " WHERE best.workload_key = ? AND best.target_key = ?"
)
_CHECKS = (
    "SELECT record.*, NULL AS reason FROM record WHERE record.verified_level = 'full'"
    " AND record.workload_key = ?1 AND record.target_key = ?2"
    " UNION ALL SELECT record.*, withdrawn.reason AS reason FROM withdrawn"
    " JOIN record ON record.key = withdrawn.record_key"
    " WHERE record.workload_key = ?1 AND record.target_key = ?2"
)
_CLAIMS = (
    "SELECT count(*) AS claims FROM record"  # noqa: S608  # our own condition
    " WHERE workload_key = ? AND target_key = ?"
    f" AND {IS_OPEN_CLAIM}"
)
_ARTEFACTS = "SELECT * FROM artefact WHERE record_key = ?"


def best_record(
    url: str | None, workload_key: str, target_key: str, *, timeout_secs: float = 30.0
) -> TuningRecord | None:
    """Return the best record of exactly this task, or None, as `Store.best` does. Neither create
    nor upgrade the database."""
    url = url or default_url()
    if is_postgres(url):
        with _store(url, timeout_secs) as store:
            return store.best(workload_key, target_key)
    row = next(iter(_rows(url, _BEST, (workload_key, target_key), timeout_secs)), None)
    if row is None:
        return None
    return _record(row)


def full_checks_of(
    url: str | None, workload_key: str, target_key: str, *, timeout_secs: float = 30.0
) -> FullChecks:
    """Return the full checks of exactly this task, as `Store.full_checks` does."""
    url = url or default_url()
    if is_postgres(url):
        with _store(url, timeout_secs) as store:
            return store.full_checks(workload_key, target_key)
    rows = _rows(url, _CHECKS, (workload_key, target_key), timeout_secs)
    return FullChecks.of(
        (record, row["reason"]) for row in rows if (record := _record(row)) is not None
    )


def open_claims(
    url: str | None, workload_key: str, target_key: str, *, timeout_secs: float = 30.0
) -> int:
    """Return the number of claims of this task that are neither confirmed nor withdrawn."""
    url = url or default_url()
    if is_postgres(url):
        with _store(url, timeout_secs) as store:
            return len(store.claims(workload_key, target_key))
    (row,) = _rows(url, _CLAIMS, (workload_key, target_key), timeout_secs)
    return int(row["claims"])


def artefacts_of_record(
    url: str | None, record_key: str, *, timeout_secs: float = 30.0
) -> list[Artefact]:
    """Return the files of a record, by kind, as `Store.artefacts` does."""
    url = url or default_url()
    if is_postgres(url):
        with _store(url, timeout_secs) as store:
            return store.artefacts(record_key)
    rows = _rows(url, _ARTEFACTS, (record_key,), timeout_secs)
    return artefacts_of(_named(ARTEFACT, row) for row in rows)


def related_records(
    url: str | None,
    workload: Workload,
    target: Target,
    count: int = MAX_WORKLOADS,
    *,
    timeout_secs: float = 30.0,
) -> list[RelatedRecords]:
    """Return the result of `Store.related` for `count` tasks."""
    # Start-up: answers that are stored need no related workloads.
    from .records.nearby import find_related

    url = url or default_url()
    if is_postgres(url):
        with _store(url, timeout_secs) as store:
            return store.related(workload, target, count)
    with _opened(url, timeout_secs) as connection:
        return find_related(partial(_query, connection), workload, target, count)


def stored_model(
    url: str | None, target: Target, *, timeout_secs: float = 30.0
) -> StoredModel | None:
    """Return the model of times of kernels that were run, as `Store.model` does."""
    # Start-up: answers that are stored need no model.
    from .records.newest_model import find_model

    url = url or default_url()
    if is_postgres(url):
        with _store(url, timeout_secs) as store:
            return store.model(target)
    with _opened(url, timeout_secs) as connection:
        return find_model(partial(_query, connection), target)


def _query(
    connection: sqlite3.Connection, statement: str, values: dict[str, Any]
) -> list[SimpleNamespace]:
    rows = connection.execute(statement, values)
    return [SimpleNamespace(**dict(zip(row.keys(), row, strict=True))) for row in rows]


def _record(row: sqlite3.Row) -> TuningRecord | None:
    return from_row(_named(RECORD, row))


def _named(columns: tuple[str, ...], row: sqlite3.Row) -> Any:
    names = guarded(columns)
    return as_row(names, [row[name] for name in names])


def _store(url: str, timeout_secs: float) -> Store:
    # Start-up: only a database on a server is read with SQLAlchemy.
    from .opening import open_store

    return open_store(url, create=False, upgrade=False, timeout_secs=timeout_secs)


def _rows(
    url: str, statement: str, values: tuple[str, ...], timeout_secs: float
) -> list[sqlite3.Row]:
    """Return the rows of one query."""
    with _opened(url, timeout_secs) as connection:
        return list(connection.execute(statement, values))


@contextmanager
def _opened(url: str, timeout_secs: float) -> Iterator[sqlite3.Connection]:
    """Open the database for reading. Raise StoreError unless the schema is that of this version,
    and if the block cannot read it."""
    path = sqlite_path(url)
    if not file_is_there(path):
        raise StoreMissing(f"database {path} does not exist; `tilewright tune` creates it")
    try:
        connection = sqlite3.connect(_read_only(path), timeout=timeout_secs, uri=True)
        try:
            connection.row_factory = sqlite3.Row
            connection.text_factory = partial(str, encoding="utf-8", errors="replace")
            if connection.execute(_TABLES).fetchone()[0] == 0:
                raise StoreMissing(f"database {path} is empty")
            revision = next(iter(connection.execute(_REVISION).fetchone() or ()), None)
            if revision is None:
                raise StoreBroken(f"database {path}: alembic_version is empty")
            refuse_newer(path, revision)
            refuse_older(path, revision)
            yield connection
        finally:
            connection.close()
    except (sqlite3.Error, UnicodeDecodeError) as error:  # damaged names do not decode
        raise _error(path, error) from error


def _error(path: Path, error: Exception) -> StoreError:
    if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
        return StoreBusy(f"database {path}: another process holds it ({error})")
    if isinstance(error, sqlite3.OperationalError) and "unable to open" in str(error):
        return StoreDenied(
            f"database {path}: cannot be opened ({error}); check that you may read it"
        )
    return StoreBroken(f"database {path}: not a usable tilewright database ({error})")


def _read_only(path: Path) -> str:
    """Return the URI for reading `path`. In a folder without write permission (a container image, a
    mounted share), a database without a log cannot change, and SQLite must not look for a log."""
    url = f"file:{quote(str(path))}?mode=ro"
    log = path.with_name(path.name + "-wal")
    return url if os.access(path.parent, os.W_OK) or log.exists() else url + "&immutable=1"
