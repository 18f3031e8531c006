"""A database of every released schema is upgraded, queried and written to."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from db import best_record, open_store
from db.errors import StoreBroken
from db.job_states import JobState
from db.models import Base
from db.schema import HEAD, REVISIONS
from db.upgrade import MIGRATIONS
from tests.contracts.store_values import TARGET, WORKLOAD, full, promoted

DUMPS = sorted(Path(__file__).parent.glob("schema_*.sql"))


def restored(dump: Path, path: Path) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(dump.read_text())
    connection.close()
    return path


def test_every_schema_has_a_dump_and_a_migration() -> None:
    assert [dump.stem for dump in DUMPS] == [f"schema_{revision}" for revision in REVISIONS]
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert [s.revision for s in scripts.walk_revisions()][::-1] == list(REVISIONS)
    assert scripts.get_heads() == [HEAD]


@pytest.mark.parametrize("dump", DUMPS, ids=lambda dump: dump.stem)
def test_an_old_database_is_upgraded_and_works(dump: Path, tmp_path: Path) -> None:
    path = restored(dump, tmp_path / "old.sqlite")
    with open_store(str(path)) as store:
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
        assert [trial for trial, _ in store.job_trials(job.id)] == [1]
        assert store.counts().blobs == 1
        had_artefacts = dump.stem != "schema_0001"
        assert [a.name for a in store.artefacts(best.key)] == ["neg.o"] * had_artefacts
        assert promoted(store, full(9, 1e-5))
        with store._database.connection(immediate=False) as connection:
            context = MigrationContext.configure(connection, opts={"render_as_batch": True})
            assert compare_metadata(context, Base.metadata) == [], "models and tables differ"
    assert best_record(str(path), WORKLOAD, TARGET.key) == full(9, 1e-5)


def test_a_first_schema_that_has_artefacts_already_keeps_them(tmp_path: Path) -> None:
    path = restored(DUMPS[1], tmp_path / "old.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = '0001'")
    connection.commit()
    connection.close()
    with open_store(str(path)) as store:
        best = store.best(WORKLOAD, TARGET.key)
        assert best is not None
        assert [a.name for a in store.artefacts(best.key)] == ["neg.o"]


def test_a_migration_does_not_pass_over_rows_that_lost_their_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = restored(DUMPS[-1], tmp_path / "old.sqlite")
    connection = sqlite3.connect(path)
    connection.execute("DELETE FROM workload")
    connection.commit()
    connection.close()
    monkeypatch.setattr("db.upgrade.read_revision", lambda _: None)
    monkeypatch.setattr("db.opening.read_revision", lambda _: None)
    with pytest.raises(StoreBroken, match=r"rows refer to rows that are missing .*left as it was"):
        open_store(str(path))
