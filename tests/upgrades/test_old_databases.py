"""A database of every released schema is upgraded, queried and written to, on both databases."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from tests.contracts.store_values import TARGET, WORKLOAD, database_of, full, promoted
from tests.support.paths import ROOT
from tests.support.postgres import PostgresServer
from tilewright.db import HEAD, best_record, is_postgres, open_store
from tilewright.db.core.models import Base
from tilewright.db.core.schema import REVISIONS
from tilewright.db.core.sqlite import SqliteDatabase
from tilewright.db.core.upgrade import MIGRATIONS, create, migrate
from tilewright.db.errors import StoreBroken
from tilewright.db.values.job_states import JobState

RELEASED = ("0001", "0002", "0006", "0007", HEAD)
"""Schemas that databases of users have, and the one that is to be released next."""
STRIDE = int(os.environ.get("TILEWRIGHT_TEST_STRIDE", "3"))
"""Upgrades are killed before every so manieth statement; before each: TILEWRIGHT_TEST_STRIDE=1."""
DUMPS = sorted(Path(__file__).parent.glob("schema_*.sql"))
Restore = Callable[[Path], str]


@pytest.fixture(params=["sqlite", "postgres"])
def restored(request: pytest.FixtureRequest, tmp_path: Path) -> Restore:
    """Makes the database a dump describes, and gives its URL."""
    if request.param == "sqlite":
        return lambda dump: str(restored_file(dump, tmp_path / f"{dump.stem}.sqlite"))
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return lambda dump: restored_on_server(dump, server, tmp_path)


def restored_file(dump: Path, path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(dump.read_text())
    connection.close()
    return path


def restored_on_server(dump: Path, server: PostgresServer, folder: Path) -> str:
    """The same rows in the tables that the migrations of that day make on a server."""
    from tilewright.db.core.postgres import PostgresDatabase

    url = server.empty()
    revision = dump.stem.removeprefix("schema_")
    with closing(PostgresDatabase(url, timeout_secs=10.0)) as database:
        migrate(database, revision)
        file = restored_file(dump, folder / f"{dump.stem}-{url.count('/')}.sqlite")
        old = sa.create_engine(f"sqlite:///{file}")
        with old.connect() as reading, database.engine.begin() as writing:
            found, made = sa.MetaData(), sa.MetaData()
            found.reflect(reading)
            made.reflect(writing)
            for table in made.sorted_tables:
                if table.name == "alembic_version":
                    continue
                rows = reading.execute(sa.select(found.tables[table.name])).mappings().all()
                for row in rows:  # what is NULL is left out: NULL is not the JSON `null`
                    values = {name: value for name, value in row.items() if value is not None}
                    writing.execute(table.insert(), values)
            for table in made.sorted_tables:  # `fit_numbers` knows the tables of today only
                today = Base.metadata.tables.get(table.name)
                numbered = None if today is None else today.autoincrement_column
                if numbered is not None:
                    last = sa.func.max(table.c[numbered.name])
                    sequence = sa.func.pg_get_serial_sequence(table.name, numbered.name)
                    present = last.is_not(None)
                    writing.execute(
                        sa.select(sa.func.setval(sequence, sa.func.coalesce(last, 1), present))
                    )
        old.dispose()
        file.unlink()
    return url


def test_every_released_schema_has_a_dump_and_every_schema_a_migration() -> None:
    dumped = [dump.stem.removeprefix("schema_") for dump in DUMPS]
    assert dumped == [revision for revision in REVISIONS if revision in RELEASED]
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert [s.revision for s in scripts.walk_revisions()][::-1] == list(REVISIONS)
    assert scripts.get_heads() == [HEAD]


def test_a_new_database_has_the_tables_that_migrations_make(tmp_path: Path) -> None:
    schemas = []
    for name in ("created", "migrated"):
        with closing(SqliteDatabase(tmp_path / name, timeout_secs=5.0)) as database:
            create(database) if name == "created" else migrate(database)
        connection = sqlite3.connect(tmp_path / name)
        statements = connection.execute(
            "SELECT name, sql FROM sqlite_schema WHERE sql NOT NULL AND name <> 'alembic_version'"
        )
        schemas.append({name: sorted(parts(sql)) for name, sql in statements})
        connection.close()
    assert schemas[0] == schemas[1]


def parts(statement: str) -> list[str]:
    """The columns and constraints of a CREATE statement, in whatever order they were written."""
    head, _, body = statement.replace("DOUBLE", "FLOAT").partition("(")
    found, depth = [""], 0
    for character in body.rstrip().removesuffix(")"):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            found.append("")
        else:
            found[-1] += character
    return [" ".join(part.split()) for part in (head, *found)]


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.stem)
def test_an_old_database_is_upgraded_and_works(dump: Path, restored: Restore) -> None:
    url = restored(dump)
    with open_store(url) as store:
        assert store.check() == []
        assert len(store.records(WORKLOAD, TARGET.key)) == 4
        best = store.best(WORKLOAD, TARGET.key)
        assert best is not None
        assert best.trial == 3
        assert [m.reason for m in store.best_history(WORKLOAD, TARGET.key)] == [
            "first",
            "faster",
            "withdrawn: wrong",
        ]
        (job,) = store.list_jobs().items
        assert job.state is JobState.SUCCEEDED
        assert (job.progress, job.result, job.error) == ({"trials": 2}, {}, None)
        assert [e.kind for e in store.events_after(job.id)] == ["state", "state", "trial", "state"]
        assert [trial for trial, _ in store.job_trials(job.id)] == [1]
        again, created = store.create_job(
            {}, body_hash="body0", flight_key="f", idempotency_key="k"
        )
        assert (again, created) == (job, False)
        assert store.counts().blobs == 1
        had_artefacts = dump.stem != "schema_0001"
        assert [a.name for a in store.artefacts(best.key)] == ["neg.o"] * had_artefacts
        assert promoted(store, full(9, 1e-5))
        new, _ = store.create_job({}, body_hash="b", flight_key="f2")
        assert store.events_after(new.id)[0].id > store.events_after(job.id)[-1].id
        with database_of(store).connection(immediate=False) as connection:
            context = MigrationContext.configure(connection, opts={"render_as_batch": True})
            assert compare_metadata(context, Base.metadata) == [], "models and tables differ"
        assert store.check() == []
    assert best_record(url, WORKLOAD, TARGET.key) == full(9, 1e-5)


def test_jobs_of_an_old_database_go_on(restored: Restore) -> None:
    """One was running: nobody holds it any more. One row is damaged: it is not taken for sound."""
    url = restored(DUMPS[1])
    damage = (
        "UPDATE job SET state = 'RUNNING', finished_at = NULL, owner = 'old', flight_key = 'f',"
        " lease_until = '2100-01-01T00:00:00.000000Z'",
        "UPDATE job_event SET data = '5 and' WHERE kind = 'trial'",
    )
    execute(url, damage[:1] if is_postgres(url) else damage)  # a server's JSON cannot be damaged
    with open_store(url) as store:
        leased = store.lease_job("new", 30)
        assert leased is not None
        assert leased.epoch == 2
        kinds = {problem.kind for problem in store.check()}
        assert kinds == (set() if is_postgres(url) else {"event"})


def execute(url: str, statements: tuple[str, ...]) -> None:
    engine = sa.create_engine(
        url.replace("postgresql:", "postgresql+psycopg:")
        if is_postgres(url)
        else f"sqlite:///{url}"
    )
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    engine.dispose()


def test_a_first_schema_that_has_artefacts_already_keeps_them(tmp_path: Path) -> None:
    path = restored_file(DUMPS[1], tmp_path / "old.sqlite")
    execute(str(path), ("UPDATE alembic_version SET version_num = '0001'",))
    with open_store(str(path)) as store:
        best = store.best(WORKLOAD, TARGET.key)
        assert best is not None
        assert [a.name for a in store.artefacts(best.key)] == ["neg.o"]


def test_a_migration_does_not_pass_over_rows_that_lost_their_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = restored_file(DUMPS[-1], tmp_path / "old.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM workload")
    connection.commit()
    connection.close()
    monkeypatch.setattr("tilewright.db.core.upgrade.read_revision", lambda _: REVISIONS[-2])
    monkeypatch.setattr("tilewright.db.opening.read_revision", lambda _: REVISIONS[-2])
    with pytest.raises(StoreBroken, match=r"rows refer to rows that are missing .*not changed"):
        open_store(str(path))


# Upgrades copies of a file, or a database on a server, in forks that die of SIGKILL before their
# n-th SQL statement: for every STRIDE-th n until one gets through, or for the one n that is given.
UPGRADER = """
import os, shutil, sys
from tilewright.db import open_store
from tests.support.killed_writers import dies_at

def upgrade(url):
    open_store(url, timeout_secs=10.0).close()

url, *numbers = sys.argv[1:]
if numbers:
    sys.exit(not dies_at(int(numbers[0]), lambda: upgrade(url)))
n = 1
while dies_at(n, lambda: upgrade(shutil.copy(url, f"{url}.{n}"))):
    n += int(os.environ["STRIDE"])
print(n)
"""


def test_an_upgrade_killed_before_any_statement_leaves_the_old_schema_or_the_new(
    tmp_path: Path,
) -> None:
    path = restored_file(DUMPS[0], tmp_path / "old.sqlite")
    command = [sys.executable, "-c", UPGRADER, str(path)]
    environment = {**os.environ, "STRIDE": str(STRIDE)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    statements = int(done.stdout)
    assert statements > 40, "fewer than there can be"
    schemas = [schema_of(path)]
    with open_store(str(path)):
        schemas.append(schema_of(path))
    for number in range(1, statements + 1, STRIDE):
        copy = Path(f"{path}.{number}")
        assert schema_of(copy) == schemas[number >= statements], f"before statement {number}"
        if number % 10 == 1:
            with open_store(str(copy)) as store:
                assert store.check() == []
                assert len(store.records(WORKLOAD, TARGET.key)) == 4


def schema_of(path: Path) -> tuple[str, set[str]]:
    """Its revision and its tables."""
    connection = sqlite3.connect(path)
    ((revision,),) = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema")}
    connection.close()
    return revision, {name for name in tables if not name.startswith("sqlite_")}


@pytest.mark.parametrize("number", [8, 20, 32])
def test_an_upgrade_killed_on_a_server_leaves_the_old_schema_or_the_new(
    postgres_server: PostgresServer, tmp_path: Path, number: int
) -> None:
    url = restored_on_server(DUMPS[0], postgres_server, tmp_path)
    command = [sys.executable, "-c", UPGRADER, url, str(number)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    with open_store(url) as store:
        assert store.check() == []
        assert len(store.records(WORKLOAD, TARGET.key)) == 4
        assert len(store.list_jobs().items) == 1
