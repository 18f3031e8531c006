"""What leaves a store: exports, backups and moves, and what nobody points to."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from tests.contracts.store_values import (
    FILES,
    OTHER_TARGET,
    OTHER_WORKLOAD,
    TARGET,
    WORKLOAD,
    Clock,
    a_record,
    exported,
    full,
    promoted,
    register,
)
from tilewright.db import Store, open_store
from tilewright.db.errors import StoreDenied
from tilewright.db.values.whole import PruneReport, RecordState, Selection


class CopiesContract:
    """`clock` is the clock of `store`."""

    def test_a_selection_is_exported(self, store: Store) -> None:
        register(store, OTHER_WORKLOAD)
        store.add([a_record(1), a_record(2, None), a_record(3, workload_key=OTHER_WORKLOAD)])
        assert promoted(store, full(4, 1e-3))
        counts = {
            None: 4,
            Selection(workload_key=OTHER_WORKLOAD): 1,
            Selection(target_key="none"): 0,
            Selection(state=RecordState.BEST): 1,
            Selection(state=RecordState.OK, workload_key=WORKLOAD): 2,
        }
        for selection, count in counts.items():
            out = io.StringIO()
            assert store.export(out, selection) == count
            lines = out.getvalue().splitlines()
            assert sum('"kind":"record"' in line for line in lines) == count

    def test_records_are_exported_by_how_far_they_came(self, store: Store) -> None:
        assert promoted(store, full(1, 1e-3))
        assert promoted(store, full(2, 1e-4))
        store.withdraw(full(2, 1e-4).key, "wrong")
        assert not promoted(store, full(3, 2e-3))
        store.add([a_record(4), a_record(5, None)])
        store.import_(exported(OTHER_WORKLOAD, [full(6, 1e-3, workload_key=OTHER_WORKLOAD)]))
        counts = {
            RecordState.BEST: 1,
            RecordState.VERIFIED: 2,
            RecordState.OK: 4,
            RecordState.FAILED: 1,
            RecordState.IMPORTED: 1,
            RecordState.WITHDRAWN: 1,
        }
        assert {s: store.export(io.StringIO(), Selection(state=s)) for s in RecordState} == counts

    def test_what_nobody_points_to_goes_and_nothing_else(self, store: Store, clock: Clock) -> None:
        store.put_blob(b"orphan", "x/o")
        register(store, OTHER_WORKLOAD, OTHER_TARGET)
        assert promoted(store, full(1, 1e-3))
        files = store.add_artefacts(full(1, 1e-3).key, FILES)
        assert store.prune() == PruneReport(0, 0, 0, 0), "too young"
        clock.advance(86_401)
        unnamed = PruneReport(blobs=0, blob_bytes=0, workloads=1, targets=1)
        assert store.prune(dry_run=True) == unnamed, "a lock file may name the blob"
        expected = PruneReport(blobs=1, blob_bytes=6, workloads=1, targets=1)
        assert store.prune(dry_run=True, built=True) == expected
        assert store.counts().blobs == 3
        assert store.prune() == unnamed
        assert store.counts().blobs == 3
        assert store.prune(built=True) == PruneReport(1, 6, 0, 0)
        assert store.prune(built=True) == PruneReport(0, 0, 0, 0)
        assert store.artefacts(full(1, 1e-3).key) == files
        assert all(store.blob(file.sha256) is not None for file in files)
        assert store.workload(OTHER_WORKLOAD) is None
        assert store.best(WORKLOAD, TARGET.key) == full(1, 1e-3)
        assert store.check() == []

    def test_a_backup_holds_everything_and_moves_to_any_empty_database(
        self, store: Store, tmp_path: Path
    ) -> None:
        from tests.contracts.store_values import every_write

        every_write(store)
        file = tmp_path / "backup.sqlite"
        store.backup(file)
        assert file.stat().st_mode & 0o777 == 0o600
        assert sorted(p.name for p in tmp_path.iterdir() if "backup" in p.name) == [file.name]
        with pytest.raises(StoreDenied, match="exists already"):
            store.backup(file)
        with open_store(str(file), create=False, upgrade=False) as copy:
            assert_same(copy, store)
            with pytest.raises(StoreDenied, match="rows already; name an empty database"):
                copy.move_to(store)
            with open_store(str(tmp_path / "moved.sqlite")) as moved:
                report = copy.move_to(moved)
                assert (report.rows["record"], report.rows["job_event"]) == (4, 4)
                assert_same(moved, store)
                assert promoted(moved, full(9, 1e-6)), "numbers go on"


def assert_same(one: Store, other: Store) -> None:
    """Two stores that say the same of everything."""
    texts = [io.StringIO(), io.StringIO()]
    for store, text in zip((one, other), texts, strict=True):
        store.export(text)
        assert store.check() == []
    assert texts[0].getvalue() == texts[1].getvalue()
    work = WORKLOAD, TARGET.key
    assert one.evidence([work]) == other.evidence([work])
    assert one.best_history(WORKLOAD, TARGET.key) == other.best_history(WORKLOAD, TARGET.key)
    (job,) = one.list_jobs().items
    assert other.list_jobs().items == (job,)
    assert one.events_after(job.id) == other.events_after(job.id)
    assert one.job_trials(job.id) == other.job_trials(job.id)
    assert one.counts() == other.counts()
