"""What every store keeps to, whatever it is made of. Subclass it and give the `store` fixture.

`RecordSinkContract` is the part the tuner relies on; `StoreContract` adds the rest but for jobs,
which are in `job_store_contract.py`.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from db import open_store
from db.answers import BestAnswer
from db.artefacts import ArtefactFile
from db.errors import (
    BadPageToken,
    BlobTooLarge,
    InvalidRecord,
    KeyConflict,
    NotRegistered,
    RefusedError,
    StoreDenied,
)
from db.models import Base
from db.prune import PruneReport
from db.store import Store
from db.transfer import FORMAT, FORMAT_VERSION, RecordState, Selection
from schedules.record import MeasureResult, MeasureStatus, Toolchain, TuningRecord
from schedules.target import Target
from tests.contracts.store_values import (
    OTHER_TARGET,
    OTHER_WORKLOAD,
    TARGET,
    TOOLCHAIN,
    WORKLOAD,
    WORKLOADS,
    Clock,
    a_record,
    full,
    probes_of,
    promoted,
    register,
)

FILES = [
    ArtefactFile("object", "neg.o", "application/x-object", b"\x7fELF"),
    ArtefactFile("header", "neg.h", "text/x-c", b"int neg"),
]


class RecordSinkContract:
    """What the tuner relies on. The fixture `store` knows WORKLOAD on TARGET."""

    def test_records_come_back_as_they_were_in_the_order_they_came(self, store: Store) -> None:
        first, second = a_record(2), a_record(1, None)
        store.add([first])
        store.add([second])
        assert store.records(WORKLOAD, TARGET.key) == [first, second]
        assert [r.key for r in store.records(WORKLOAD, TARGET.key)] == [first.key, second.key]

    def test_adding_again_changes_nothing(self, store: Store) -> None:
        record = a_record()
        store.add([record, record])
        store.add([replace(record, created_at="2020-01-01T00:00:00Z")])
        assert len(store.records(WORKLOAD, TARGET.key)) == 1

    def test_a_record_without_a_time_of_day_gets_the_stores(self, store: Store) -> None:
        store.add([a_record(1), a_record(2, created_at="2026-02-01T13:00:00+01:00")])
        moments = [r.created_at for r in store.records(WORKLOAD, TARGET.key)]
        assert moments == ["2026-01-31T12:00:00.000000Z", "2026-02-01T12:00:00.000000Z"]

    def test_all_or_none_of_a_batch_is_stored(self, store: Store) -> None:
        with pytest.raises(NotRegistered, match=r"call register\(\) first"):
            store.add([a_record(1), a_record(2, workload_key="sha256:unknown")])
        assert store.records(WORKLOAD, TARGET.key) == []

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"result": MeasureResult(MeasureStatus.OK)}, "status ok needs a time"),
            (
                {"result": MeasureResult(MeasureStatus.RUN_CRASH, (1.0,))},
                "status run_crash must carry no time",
            ),
            *(
                ({"result": MeasureResult(MeasureStatus.OK, (), secs)}, r"must be in 0\.\.1e\+06 s")
                for secs in (float("nan"), float("inf"), 0.0, -1.0, 1e6)
            ),
            (
                {"result": MeasureResult(MeasureStatus.OK, (1.0, float("nan")), 1.0)},
                "got nan",
            ),
            (
                {"result": MeasureResult(MeasureStatus.LOST, compile_secs=float("inf"))},
                "compile_secs: must be a duration",
            ),
            ({"threads": 0}, r"threads: must be a whole number in 1\.\.65535, got 0"),
            ({"seed": -1}, "seed: must be a whole number"),
            ({"trial": True}, "trial: must be a whole number"),
            ({"trace": {}}, "trace: must be a list, got dict"),
            ({"trace": [float("nan")]}, "trace: not JSON data"),
            ({"verified_level": ""}, r"verified_level: must be text of 1\.\.16 characters"),
            ({"created_at": "yesterday"}, "created_at: must be an RFC 3339 time"),
            ({"created_at": "2026-01-01T00:00:00"}, "created_at: must be .* with its zone"),
        ],
    )
    def test_a_record_that_contradicts_itself_is_refused(
        self, store: Store, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(InvalidRecord, match=message):
            store.add([a_record(**changes)])
        assert store.records(WORKLOAD, TARGET.key) == []

    def test_only_a_strictly_faster_fully_verified_record_becomes_best(self, store: Store) -> None:
        slow, equal, fast = full(1, 2e-3), full(2, 2e-3), full(3, 1e-3)
        assert not promoted(store, a_record(9, 1e-6)), "checked quickly only"
        assert not promoted(store, a_record(8, None, verified_level="full")), "it crashed"
        assert store.best(WORKLOAD, TARGET.key) is None
        assert promoted(store, slow)
        assert not promoted(store, equal), "equal times leave the older"
        assert promoted(store, fast)
        assert store.promote(fast), "it still is"
        assert not store.promote(slow)
        assert store.best(WORKLOAD, TARGET.key) == fast

    def test_a_record_that_is_not_stored_cannot_be_best(self, store: Store) -> None:
        with pytest.raises(NotRegistered, match="add it first"):
            store.promote(full(1, 1e-3))

    def test_a_newer_toolchain_takes_over_and_an_older_never_does(self, store: Store) -> None:
        new = replace(TOOLCHAIN, llvm="22.10.0")  # 10 is later than 9: numbers, not text
        old = replace(TOOLCHAIN, llvm="22.9.0")
        assert promoted(store, full(1, 1e-3, toolchain=old))
        assert promoted(store, full(2, 3e-3, toolchain=new))
        assert not promoted(store, full(3, 1e-6, toolchain=old))
        reasons = [move.reason for move in store.best_history(WORKLOAD, TARGET.key)]
        assert reasons == ["first", "newer toolchain"]

    def test_mocked_timings_compare_by_time_and_give_way_to_real_ones(self, store: Store) -> None:
        one, other = Toolchain(0, "simulated", "9c1"), Toolchain(0, "simulated", "3f2")
        assert promoted(store, full(1, 2e-3, toolchain=one))
        assert promoted(store, full(2, 1e-3, toolchain=other))
        assert promoted(store, full(3, 3e-3))
        assert not promoted(store, full(4, 1e-9, toolchain=one))


class StoreContract(RecordSinkContract):
    """Everything else. `clock` is the clock of `store`; `damage(SQL)` edits behind its back."""

    # Workloads and targets

    def test_the_first_name_stays_and_probes_are_renewed(self, store: Store) -> None:
        renamed = json.dumps(WORKLOADS[WORKLOAD].to_json()).replace('"A"', '"Z"')
        probed = TARGET.to_json() | {"probes": {"peak_gflops": {"f32": [100.0]}}}
        store.register(WORKLOAD, json.loads(renamed), "another name", 7, TARGET.key, probed)
        workload = store.workload(WORKLOAD)
        assert workload is not None
        assert (workload.name, workload.flops) == ("neg:1", 1024)
        assert workload.document == WORKLOADS[WORKLOAD].to_json(), "the first spelling"
        assert probes_of(store) == {"f32": [100.0]}
        register(store)  # mocked timings have no probes, and take none away
        assert probes_of(store) == {"f32": [100.0]}
        assert store.workload("none") is None
        assert store.target("none") is None

    def test_one_key_cannot_stand_for_two_computations(self, store: Store) -> None:
        other = WORKLOADS[OTHER_WORKLOAD].to_json()
        with pytest.raises(KeyConflict, match=f"the one given has the key {OTHER_WORKLOAD}"):
            store.register(WORKLOAD, other, "x", 1, TARGET.key, TARGET.to_json())

    def test_keys_and_flops_are_held_to_their_range(self, store: Store) -> None:
        with pytest.raises(RefusedError, match=r"flops: must be in 0\.\.2\*\*63-1"):
            store.register("w", {}, "x", 2**63, TARGET.key, TARGET.to_json())
        with pytest.raises(RefusedError, match=r"key: must be text of 1\.\.80 characters"):
            store.register("", {}, "x", 1, TARGET.key, TARGET.to_json())

    def test_a_damaged_workload_is_not_served_and_mended_by_registering(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        damage("UPDATE workload SET flops = 1025")
        damage("UPDATE target SET document = '{}'")
        assert store.workload(WORKLOAD) is None
        assert store.target(TARGET.key) is None
        assert {p.kind for p in store.check()} == {"workload", "target"}
        register(store)
        assert store.workload(WORKLOAD) is not None
        assert probes_of(store) == {}
        assert store.check() == []

    # Records

    def test_pages_give_every_record_once(self, store: Store) -> None:
        records = [a_record(trial) for trial in range(1, 8)]
        store.add(records)
        found: list[TuningRecord] = []
        token, pages = None, 0
        while pages == 0 or token is not None:
            page = store.records_page(token, 3, workload_key=WORKLOAD, target_key=TARGET.key)
            found += page.items
            token, pages = page.next_token, pages + 1
        assert found == records
        assert pages == 3
        assert store.counts().records == 7
        assert store.counts(OTHER_WORKLOAD).records == 0

    @pytest.mark.parametrize("token", ["x", "-1", "1; DROP TABLE record", "9" * 30, ""])
    def test_a_foreign_page_token_is_refused(self, store: Store, token: str) -> None:
        with pytest.raises(BadPageToken, match="give the next_token"):
            store.records_page(token)
        with pytest.raises(BadPageToken, match="give the next_token"):
            store.list_jobs(token)

    @pytest.mark.parametrize(
        "change",
        [
            "estimate_secs = 0.0005",
            "status = 'run_crash', estimate_secs = NULL",
            "document = replace(document, '0.001', '0.002')",
            "document = CAST(x'ff' AS TEXT)",
            "document = x'00'",
            "verified_level = 'imported'",
            "row_sha256 = ''",
            "trial = 3",
            "created_at = ''",
        ],
    )
    def test_a_damaged_record_is_never_served(
        self, store: Store, damage: Callable[[str], None], change: str
    ) -> None:
        record = full(1, 1e-3)
        assert promoted(store, record)
        damage(f"UPDATE record SET {change}")
        assert store.best(WORKLOAD, TARGET.key) is None
        assert store.best_many([(WORKLOAD, TARGET.key)]) == {}
        assert store.record(record.key) is None
        assert store.records(WORKLOAD, TARGET.key, include_imported=True) == []
        assert "record" in {p.kind for p in store.check()}
        assert promoted(store, full(2, 5e-3)), "a sound one takes its place"
        assert store.best_history(WORKLOAD, TARGET.key)[-1].reason == "incumbent damaged"

    # The best

    def test_many_are_looked_up_at_once(self, store: Store) -> None:
        works = list(WORKLOADS)[:5]
        for number, work in enumerate(works):
            register(store, work)
            if number != 3:
                assert promoted(store, full(1, 1e-3, workload_key=work))
        keys = [(work, TARGET.key) for work in works] * 500
        found = store.best_many(keys)
        assert set(found) == {(work, TARGET.key) for work in works if work != works[3]}
        assert all(record.workload_key == key[0] for key, record in found.items())

    def test_the_best_on_other_machines_comes_with_what_they_are(self, store: Store) -> None:
        register(store, target=OTHER_TARGET)
        theirs = full(1, 1e-3, target_key=OTHER_TARGET.key)
        assert promoted(store, full(1, 2e-3))
        assert promoted(store, theirs)
        (elsewhere,) = store.best_elsewhere(WORKLOAD, TARGET.key)
        assert elsewhere.record == theirs
        assert Target.from_json(elsewhere.target_document) == OTHER_TARGET
        assert store.best_elsewhere(OTHER_WORKLOAD, TARGET.key) == []

    def test_a_withdrawn_record_is_followed_by_the_next(self, store: Store) -> None:
        slow, fast = full(1, 2e-3), full(2, 1e-3)
        assert promoted(store, slow)
        assert promoted(store, fast)
        assert store.withdraw(fast.key, "wrong at element 7") == slow
        assert not store.promote(fast)
        assert store.best(WORKLOAD, TARGET.key) == slow
        assert store.withdraw(slow.key, "wrong too") is None
        assert store.best(WORKLOAD, TARGET.key) is None
        moves = store.best_history(WORKLOAD, TARGET.key)
        assert [move.version for move in moves] == [1, 2, 3, 4]
        assert moves[2].reason == "withdrawn: wrong at element 7"
        assert moves[3].to_record_key is None
        assert store.check() == []
        assert promoted(store, full(3, 5e-3)), "and can be filled again"
        with pytest.raises(NotRegistered, match="nothing to withdraw"):
            store.withdraw("sha256:none", "")

    # Blobs

    def test_blobs_are_named_by_their_content(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        name = store.put_blob(b"\x7fELF", "application/x-object")
        assert name == store.put_blob(b"\x7fELF", "application/x-object")
        blob = store.blob(name)
        assert blob is not None
        assert (blob.data, blob.media_type) == (b"\x7fELF", "application/x-object")
        assert store.blob("0" * 64) is None
        damage("UPDATE blob SET data = x'00'")
        assert store.blob(name) is None
        assert [p.kind for p in store.check()] == ["blob"]
        assert store.put_blob(b"\x7fELF", "application/x-object") == name
        assert store.blob(name) is not None

    def test_a_blob_has_a_limit(self, store: Store) -> None:
        with pytest.raises(BlobTooLarge, match="at most 4194304 bytes, got 4194305"):
            store.put_blob(bytes(4 * 1024 * 1024 + 1), "x")
        assert store.counts().blobs == 0

    # Artefacts

    def test_a_record_names_its_files(self, store: Store) -> None:
        store.add([a_record(1), a_record(2)])
        first, second = a_record(1).key, a_record(2).key
        kept = store.add_artefacts(first, FILES)
        assert [(a.kind, a.name, a.bytes) for a in kept] == [
            ("header", "neg.h", 7), ("object", "neg.o", 4),
        ]  # fmt: skip
        assert store.artefacts(first) == kept
        assert store.artefacts(second) == []
        assert store.artefacts_many([first, second, "sha256:none"]) == {first: kept}
        for artefact, file in zip(kept, reversed(FILES), strict=True):
            blob = store.blob(artefact.sha256)
            assert blob is not None
            assert (blob.data, blob.media_type) == (file.data, file.media_type)

    def test_the_first_files_of_a_record_stay(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        store.add([a_record(1)])
        kept = store.add_artefacts(a_record(1).key, FILES)
        other = [ArtefactFile("object", "other.o", "application/x-object", b"other")]
        assert store.add_artefacts(a_record(1).key, other) == kept
        assert store.counts().blobs == 2
        damage("UPDATE blob SET data = x'00'")
        assert sorted(p.kind for p in store.check()) == ["artefact", "artefact", "blob", "blob"]
        assert store.add_artefacts(a_record(1).key, FILES) == kept
        assert store.check() == []

    def test_a_damaged_artefact_is_not_served_and_can_be_stored_again(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        store.add([a_record(1)])
        kept = store.add_artefacts(a_record(1).key, FILES)
        damage("UPDATE artefact SET name = 'evil.o' WHERE kind = 'object'")
        assert [a.kind for a in store.artefacts(a_record(1).key)] == ["header"]
        assert [p.kind for p in store.check()] == ["artefact"]
        assert store.add_artefacts(a_record(1).key, FILES) == kept
        assert store.check() == []

    def test_files_belong_to_a_stored_record_and_are_kept_whole(self, store: Store) -> None:
        with pytest.raises(NotRegistered, match="there is no such record"):
            store.add_artefacts(a_record(1).key, FILES)
        store.add([a_record(1)])
        huge = ArtefactFile("llvm", "neg.ll", "text/x-llvm", bytes(4 * 1024 * 1024 + 1))
        with pytest.raises(BlobTooLarge, match="at most 4194304 bytes"):
            store.add_artefacts(a_record(1).key, [*FILES, huge])
        assert store.artefacts(a_record(1).key) == []
        assert store.counts().blobs == 0

    # Export

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

    # All an answer needs at once

    def test_an_answer_comes_with_all_it_needs(self, store: Store) -> None:
        record = full(1, 1e-3)
        assert promoted(store, full(2, 2e-3))
        assert promoted(store, record)
        files = store.add_artefacts(record.key, FILES)
        register(store, OTHER_WORKLOAD)
        answer = store.best_answer(WORKLOAD, TARGET.key)
        assert answer == BestAnswer(
            workload=store.workload(WORKLOAD),
            target=store.target(TARGET.key),
            record=record,
            artefacts=tuple(files),
            version=2,
        )
        assert store.best_answer(OTHER_WORKLOAD, "none") == BestAnswer(
            store.workload(OTHER_WORKLOAD), None, None
        )
        assert store.best_answer("none", TARGET.key) == BestAnswer(
            None, store.target(TARGET.key), None
        )
        keys = [(work, TARGET.key) for work in (WORKLOAD, OTHER_WORKLOAD, "none")] * 400
        found = store.best_answers([*keys, (WORKLOAD, OTHER_TARGET.key)])
        assert list(found) == [*keys[:3], (WORKLOAD, OTHER_TARGET.key)]
        assert found[keys[0]] == answer
        assert store.best_answers([]) == {}

    @pytest.mark.parametrize(
        "change",
        [
            "record SET estimate_secs = 0.0005",
            "record SET document = replace(document, '0.001', '0.002')",
            "record SET object_sha256 = 'x'",
            "artefact SET bytes = 5",
            "workload SET flops = 7",
            "target SET document = '{}'",
        ],
    )
    def test_an_answer_given_before_is_not_given_from_damaged_rows(
        self, store: Store, damage: Callable[[str], None], change: str
    ) -> None:
        assert promoted(store, full(1, 1e-3))
        files = store.add_artefacts(full(1, 1e-3).key, FILES)
        before = store.best_answer(WORKLOAD, TARGET.key)
        damage(f"UPDATE {change}")
        match change.split(maxsplit=1)[0]:
            case "record":
                expected = BestAnswer(before.workload, before.target, None)
            case "artefact":
                expected = replace(before, artefacts=())
            case "workload":
                expected = replace(before, workload=None)
            case _:
                expected = replace(before, target=None)
        assert store.best_answer(WORKLOAD, TARGET.key) == expected
        assert len(files) == 2

    def test_an_answer_follows_the_best(self, store: Store) -> None:
        for trial, secs in enumerate((3e-3, 2e-3, 1e-3), start=1):
            assert promoted(store, full(trial, secs))
            answer = store.best_answer(WORKLOAD, TARGET.key)
            assert (answer.record, answer.version) == (full(trial, secs), trial)
        store.withdraw(full(3, 1e-3).key, "wrong")
        answer = store.best_answer(WORKLOAD, TARGET.key)
        assert (answer.record, answer.version) == (full(2, 2e-3), 4)

    # Claims

    def test_a_claim_becomes_an_answer_once_it_is_verified_here(self, store: Store) -> None:
        slow, fast = full(1, 2e-3), full(2, 1e-3)
        store.import_(exported(WORKLOAD, [slow, fast, a_record(3, None)]))
        claims = store.claims(WORKLOAD, TARGET.key)
        assert [claim.trial for claim in claims] == [2, 1], "the fastest first, no failures"
        assert store.claims_waiting() == claims[:1]
        assert store.best(WORKLOAD, TARGET.key) is None
        own = replace(claims[0], verified_level="full", result=full(2, 1.5e-3).result)
        assert store.confirm(claims[0].key, own)
        assert store.best(WORKLOAD, TARGET.key) == own, "with the time that was measured here"
        assert store.claims(WORKLOAD, TARGET.key) == claims[1:]
        assert store.claims_waiting() == []
        assert store.confirm(claims[0].key, own), "again it changes nothing"
        store.withdraw(claims[1].key, "wrong at element 7")
        assert store.claims(WORKLOAD, TARGET.key) == []
        assert store.check() == []

    def test_a_confirmation_is_of_the_same_kernel_and_verified(self, store: Store) -> None:
        store.import_(exported(WORKLOAD, [full(1, 1e-3)]))
        (claim,) = store.claims(WORKLOAD, TARGET.key)
        own = replace(claim, verified_level="full")
        for changes, message in (
            ({"trace": []}, "not of the work and trace"),
            ({"threads": 2}, "not of the work and trace"),
            ({"verified_level": "quick"}, "was verified in full"),
        ):
            with pytest.raises(InvalidRecord, match=message):
                store.confirm(claim.key, replace(own, **changes))
        store.add([own])
        for key in (own.key, "sha256:none"):
            with pytest.raises(NotRegistered, match="no claim of this key"):
                store.confirm(key, own)
        assert store.best(WORKLOAD, TARGET.key) is None

    # The whole database

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
        from tests.db.test_durability import every_write

        every_write(store)
        file = tmp_path / "backup.sqlite"
        store.backup(file)
        assert file.stat().st_mode & 0o777 == 0o600
        assert sorted(p.name for p in tmp_path.iterdir() if "backup" in p.name) == [file.name]
        with pytest.raises(StoreDenied, match="is there already"):
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

    def test_a_store_tells_what_it_is(self, store: Store) -> None:
        store.ping()
        assert "postgres@" not in store.name
        assert store.path is None or str(store.path) == store.name
        with open_store(store.url, create=False, upgrade=False) as again:
            assert again.workload(WORKLOAD) is not None

    def test_tampered_rows_are_never_served_and_always_told(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        from tests.db.test_durability import every_write

        every_write(store)
        before, told = said(store), 0
        for table, columns in TAMPERED.items():
            with kept(table, damage) as restore:
                for column in columns.split():
                    for change in CHANGES:
                        statement = f"UPDATE {table} SET {column} = " + change.format(column)
                        try:
                            damage(statement)
                        except (sqlite3.Error, psycopg.Error):  # a constraint, a wrong type
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
    found: list[object] = [
        ("best", store.best(WORKLOAD, TARGET.key)),
        ("answer", replace(store.best_answer(WORKLOAD, TARGET.key), version=0).record),
        store.workload(WORKLOAD),
        store.best_answer(WORKLOAD, TARGET.key).workload,
        store.target(TARGET.key),
        *store.records_page().items,
        *store.artefacts(full(3, 1e-3).key),
        store.blob(hashlib.sha256(b"object").hexdigest()),
    ]
    for job in store.list_jobs().items:
        found += [job, *store.events_after(job.id), *store.job_trials(job.id)]
    return {repr(value) for value in found} | {"None", "('best', None)", "('answer', None)"}


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


def exported(workload: str, records: list[TuningRecord]) -> list[str]:
    """An export as another machine would have written it."""
    made = WORKLOADS[workload]
    named = {"key": workload, "name": made.name, "flops": 1024, "document": made.to_json()}
    lines = [
        {"format": FORMAT, "version": FORMAT_VERSION},
        {"kind": "workload", **named},
        {"kind": "target", "key": TARGET.key, "document": TARGET.to_json()},
        *({"kind": "record", "key": r.key, "record": r.to_json()} for r in records),
    ]
    return [json.dumps(line) for line in lines]


def assert_same(one: Store, other: Store) -> None:
    """Two stores that say the same of everything."""
    texts = [io.StringIO(), io.StringIO()]
    for store, text in zip((one, other), texts, strict=True):
        store.export(text)
        assert store.check() == []
    assert texts[0].getvalue() == texts[1].getvalue()
    assert one.best_answer(WORKLOAD, TARGET.key) == other.best_answer(WORKLOAD, TARGET.key)
    assert one.best_history(WORKLOAD, TARGET.key) == other.best_history(WORKLOAD, TARGET.key)
    (job,) = one.list_jobs().items
    assert other.list_jobs().items == (job,)
    assert one.events_after(job.id) == other.events_after(job.id)
    assert one.job_trials(job.id) == other.job_trials(job.id)
    assert one.counts() == other.counts()
