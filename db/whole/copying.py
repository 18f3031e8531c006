"""Copies all rows of a database into another, to move a database or to back up a server."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, MetaData, Row, Table, func, select

from tilewright.schedules.canonical import canonical_bytes

from ..core.engine import Database
from ..core.files import whole_file
from ..core.models import Base, Moment, UtcMoment
from ..core.parts import StorePart
from ..core.sqlite import SqliteDatabase
from ..core.upgrade import create
from ..errors import StoreBroken, StoreDenied
from ..values.whole import MoveReport

_ROWS_PER_INSERT = 500
_BLOBS_PER_INSERT = 8


@dataclass(slots=True)
class _RowChecksum:
    """The number of rows and the sum of their hashes, which do not depend on the order of rows."""

    count: int = 0
    total: int = 0

    def add(self, rows: Iterable[Row[Any]]) -> None:
        for row in rows:
            values = [
                hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value
                for value in row
            ]
            digest = hashlib.sha256(canonical_bytes(values)).digest()
            self.count += 1
            self.total = (self.total + int.from_bytes(digest, "big")) % 2**256


class CopyStore(StorePart):
    """The methods of a store that copy it: `backup` to a file, and `move_to` another store."""

    def backup(self, file: Path) -> None:
        """Write a consistent copy to `file`, a SQLite database readable by its owner only, while
        the database is in use. Raise StoreDenied if `file` exists, StoreFull if no space is
        left."""
        with whole_file(file) as part:
            if isinstance(self._database, SqliteDatabase):
                self._database.copy_into(part)
            else:
                with closing(SqliteDatabase(part, timeout_secs=30.0)) as copy:
                    create(copy)
                    copy_rows(self._database, copy)

    def move_to(self, other: CopyStore) -> MoveReport:
        """Copy everything into the empty store `other`, in one transaction.

        Raise StoreHeld while a service uses one of the stores, StoreDenied if `other` is not empty,
        StoreBroken if counts or hashes differ before the commit.
        """
        source, target = self._database, other._database
        if source.url == target.url or _is_same_file(source.path, target.path):
            raise StoreDenied(f"database {self.name}: cannot be moved to itself")
        with _alone(source), _alone(target):
            return copy_rows(source, target)


@contextmanager
def _alone(database: Database) -> Iterator[None]:
    """Hold the coordinator's lock of `database` during the block, so that no other service uses the
    database as its coordinator."""
    had_it = database.lock.held
    database.lock.acquire(min(database.timeout_secs, 1.0), purpose=f"move {database.name}")
    try:
        yield
    finally:
        if not had_it:
            database.lock.release()


def copy_rows(source: Database, target: Database) -> MoveReport:
    """Copy one snapshot of `source` into the empty `target`, or nothing. Raise StoreDenied if
    `target` is not empty, StoreBroken if the two differ at the end."""
    tables = _plain_tables()
    with source.standing_still() as reading, target.connection(immediate=True) as writing:
        _refuse_rows(writing, target.name, tables)
        sent = {table.name: _read(reading.connection(), table, writing) for table in tables}
        target.fit_numbers(writing)
        arrived = {table.name: _read(writing, table) for table in tables}
        different = [name for name in sent if sent[name] != arrived[name]]
        if different:
            raise StoreBroken(
                f"database {target.name}: the copies of {', '.join(different)} differ; "
                "nothing was copied"
            )
    return MoveReport({name: tally.count for name, tally in sent.items()})


def _plain_tables() -> Sequence[Table]:
    """Return the tables, referenced tables first. Timestamps are text, so that damaged ones are
    copied unchanged."""
    plain = MetaData()
    for table in Base.metadata.sorted_tables:
        copy = table.to_metadata(plain)
        for column in copy.columns:
            if isinstance(column.type, UtcMoment):
                column.type = Moment
    return plain.sorted_tables


def _refuse_rows(writing: Connection, name: str, tables: Sequence[Table]) -> None:
    for table in tables:
        count = writing.scalar(select(func.count()).select_from(table))
        if count:
            raise StoreDenied(
                f"database {name}: {table.name} has {count} rows already; name an empty database"
            )


def _read(reading: Connection, table: Table, writing: Connection | None = None) -> _RowChecksum:
    """Return the checksum of a table, and copy its rows to `writing` if given."""
    tally = _RowChecksum()
    size = _BLOBS_PER_INSERT if table.name == "blob" else _ROWS_PER_INSERT
    found = reading.execute(select(table), execution_options={"yield_per": size})
    for rows in found.partitions(size):
        tally.add(rows)
        if writing is not None:
            writing.execute(table.insert(), [dict(row._mapping) for row in rows])
    return tally


def _is_same_file(one: Path | None, other: Path | None) -> bool:
    return one is not None and other is not None and one.samefile(other)
