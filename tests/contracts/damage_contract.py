"""Rows that were changed behind a store's back are never served, and always told."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.contracts.store_values import (
    TARGET,
    WORKLOAD,
    ChangeRefused,
    all_records,
    full,
    promoted,
)
from tilewright.db import Store
from tilewright.db.core.models import Base


class DamageContract:
    """`damage(SQL)` edits behind the back of `store`, or raises ChangeRefused."""

    def test_tampered_rows_are_never_served_and_always_told(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        from tests.contracts.store_values import every_write

        every_write(store)
        before, told = said(store), 0
        for table, columns in TAMPERED.items():
            with kept(table, damage) as restore:
                for column in columns.split():
                    for change in CHANGES:
                        statement = f"UPDATE {table} SET {column} = " + change.format(column)
                        try:
                            damage(statement)
                        except ChangeRefused:
                            continue
                        assert said(store) <= before, statement
                        assert store.check() != [], statement
                        restore()
                        told += 1
        assert told > 30, "a server refuses more of it by type"
        assert store.check() == []

    def test_check_tells_of_a_best_that_became_slower_without_a_reason(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        assert promoted(store, full(1, 1e-3))
        assert promoted(store, full(2, 1e-4))
        assert store.check() == []
        damage("UPDATE best_move SET reason = 'withdrawn: never' WHERE version = 2")
        assert [(p.invariant, p.kind) for p in store.check()] == [("I4", "history")]
        damage(
            f"UPDATE best_move SET reason = 'faster', from_record_key = '{full(2, 1e-4).key}',"
            f" to_record_key = '{full(1, 1e-3).key}' WHERE version = 2"
        )
        assert {p.invariant for p in store.check()} == {"I4"}
        damage(f"UPDATE best SET record_key = '{full(1, 1e-3).key}'")
        damage("UPDATE record SET row_sha256 = ''")
        assert "I3" in {p.invariant for p in store.check()}


TAMPERED = {
    "workload": "name flops document row_sha256",
    "target": "document row_sha256",
    "record": "threads status estimate_secs codegen_version llvmlite llvm seed strategy trial"
    " verified_level object_sha256 created_at document row_sha256",
    "model": "timings document quality created_at row_sha256",
    "blob": "data",
    "artefact": "kind name bytes row_sha256",
    "job": "state priority arrival request flight_key progress result error lease_secs epoch"
    " failures created_at started_at finished_at row_sha256",
    "job_request": "body_sha256 created_at row_sha256",
    "job_event": "epoch kind data created_at row_sha256",
    "job_trial": "trial epoch row_sha256",
    "best": "version",
    "best_move": "version",
}
CHANGES = ("coalesce({0}, 0) + 1", "coalesce({0}, '') || 'x'")


def said(store: Store) -> set[str]:
    """Everything that a store serves, as texts."""
    evidence = store.evidence([(WORKLOAD, TARGET.key)])[WORKLOAD, TARGET.key]
    found: list[object] = [
        ("best", store.best(WORKLOAD, TARGET.key)),
        *(("evidence", best.record) for best in evidence.best()),
        store.workload(WORKLOAD),
        evidence.entry(),
        store.target(TARGET.key),
        evidence.target_document(),
        *all_records(store),
        store.model(TARGET),
        *store.artefacts(full(3, 1e-3).key),
        store.blob(hashlib.sha256(b"object").hexdigest()),
    ]
    for job in store.list_jobs().items:
        found += [job, *store.events_after(job.id), *store.job_trials(job.id)]
    return {repr(value) for value in found} | {"None", "('best', None)"}


@contextmanager
def kept(table: str, damage: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """What makes `table` what it was."""
    damage(f"CREATE TABLE kept AS SELECT * FROM {table}")
    columns = Base.metadata.tables[table].columns
    values = ", ".join(f"{c.name} = kept.{c.name}" for c in columns if not c.primary_key)
    same = " AND ".join(f"kept.{c.name} = {table}.{c.name}" for c in columns if c.primary_key)

    def restore() -> None:
        if table in ("artefact", "job_trial"):  # nobody refers to them, and keys were changed
            damage(f"DELETE FROM {table}")
            damage(f"INSERT INTO {table} SELECT * FROM kept")
        else:
            damage(f"UPDATE {table} SET {values} FROM kept WHERE {same}")

    yield restore
    damage("DROP TABLE kept")
