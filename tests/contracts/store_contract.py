"""What every store keeps to, whatever it is made of. Subclass it and give the `store` fixture.

`RecordSinkContract` is the part the tuner relies on; `StoreContract` the rest.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from db.errors import (
    BadPageToken,
    BadTransition,
    BlobTooLarge,
    IdempotencyConflict,
    InvalidRecord,
    KeyConflict,
    NotRegistered,
    RefusedError,
    StaleLease,
    UnknownJob,
)
from db.job_states import JobState
from db.jobs import LOST_TOO_OFTEN, MAX_TAKEOVERS, Job
from db.store import Store
from db.transfer import Selection
from schedules.record import MeasureResult, MeasureStatus, Toolchain, TuningRecord
from schedules.target import Cache, Target
from schedules.workload import Workload

TARGET = Target(
    triple="x86_64-unknown-linux-gnu",
    cpu="znver3",
    features=("avx2", "fma"),
    vector_bits=256,
    vector_registers=16,
    caches=(Cache(32768, 8),),
    cores=2,
)
OTHER_TARGET = replace(TARGET, cpu="znver5", vector_bits=512, vector_registers=32)


def a_workload(extent: int) -> Workload:
    """`B[i] = -A[i]` over `extent` elements."""
    shape = {"dtype": "f32", "shape": [extent]}
    body = {"op": "neg", "x": {"op": "load", "tensor": "A", "index": ["i"]}}
    stage = {"name": "B", "dtype": "f32", "axes": [["i", extent]], "body": body}
    document = {"inputs": [{"name": "A", **shape}], "stages": [stage], "outputs": ["B"]}
    return Workload.from_json(document).named(f"neg:{extent}")


WORKLOADS = {made.key: made for made in map(a_workload, range(1, 8))}
WORKLOAD, OTHER_WORKLOAD, *_ = WORKLOADS
TOOLCHAIN = Toolchain(codegen_version=1, llvmlite="0.50.0", llvm="22.1.0")
START = datetime(2026, 1, 31, 12, tzinfo=UTC)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, secs: float) -> None:
        self.now += timedelta(seconds=secs)


def a_record(trial: int = 1, secs: float | None = 1e-3, **changes: Any) -> TuningRecord:
    """An OK record that takes `secs`, or one that crashed if that is None."""
    if secs is None:
        result = MeasureResult(MeasureStatus.RUN_CRASH, detail="SIGSEGV")
    else:
        result = MeasureResult(MeasureStatus.OK, (secs, secs * 1.1), secs)
    record = TuningRecord(
        workload_key=WORKLOAD,
        target_key=TARGET.key,
        threads=1,
        trace=[{"split": "i", "factor": 8, "at": trial}],
        result=result,
        toolchain=TOOLCHAIN,
        seed=0,
        trial=trial,
    )
    return replace(record, **changes)


def full(trial: int, secs: float, **changes: Any) -> TuningRecord:
    """A record verified in full."""
    return a_record(trial, secs, verified_level="full", **changes)


def register(store: Store, workload: str = WORKLOAD, target: Target = TARGET) -> None:
    made = WORKLOADS[workload]
    store.register(workload, made.to_json(), made.name, 1024, target.key, target.to_json())


def probes_of(store: Store) -> dict[str, list[float]]:
    document = store.target(TARGET.key)
    assert document is not None
    target = Target.from_json(document)
    assert target == TARGET
    return target.probes.peak_gflops


def promoted(store: Store, record: TuningRecord) -> bool:
    store.add([record])
    return store.promote(record)


def submit(store: Store, number: int = 0, **changes: Any) -> tuple[Job, bool]:
    arguments: dict[str, Any] = {"body_hash": f"body{number}", "flight_key": f"flight{number}"}
    return store.create_job({"workload": number}, **(arguments | changes))


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

    # Jobs

    def test_equal_work_in_flight_is_one_job(self, store: Store) -> None:
        job, created = submit(store)
        assert created
        assert submit(store) == (job, False)
        other, created = submit(store, 1)
        assert created
        assert other.id != job.id
        assert (job.state, job.done, job.progress) == (JobState.QUEUED, False, {})
        assert store.get_job(job.id) == job
        assert store.get_job("none") is None

    def test_an_idempotency_key_gives_its_job_for_good(self, store: Store) -> None:
        job, _ = submit(store, idempotency_key="k")
        same, _ = submit(store, idempotency_key="joined")
        assert same.id == job.id
        store.request_cancel(job.id)
        for key in ("k", "joined"):
            again, created = submit(store, idempotency_key=key)
            assert (again.id, created) == (job.id, False)
        with pytest.raises(IdempotencyConflict, match="already used for another request"):
            submit(store, 1, idempotency_key="k")
        _, created = submit(store)
        assert created, "the first job is over: without a key this is new work"

    def test_jobs_are_listed_newest_first(self, store: Store, clock: Clock) -> None:
        ids = []
        for number in range(5):
            clock.advance(1)
            ids.append(submit(store, number)[0].id)
        first = store.list_jobs(page_size=3)
        assert [job.id for job in first.items] == ids[:1:-1]
        rest = store.list_jobs(first.next_token, 3)
        assert [job.id for job in rest.items] == ids[1::-1]
        assert rest.next_token is None
        store.request_cancel(ids[2])
        assert [j.id for j in store.list_jobs(state=JobState.CANCELLED).items] == [ids[2]]

    def test_a_job_runs_from_lease_to_result(self, store: Store, clock: Clock) -> None:
        job, _ = submit(store)
        leased = store.lease_job("worker-1", 30)
        assert leased is not None
        assert (leased.id, leased.state, leased.epoch) == (job.id, JobState.RUNNING, 1)
        assert store.lease_job("worker-2", 30) is None, "one worker a job"
        assert submit(store) == (leased, False), "running work is joined too"
        store.update_progress(job.id, 1, {"trials": 3})
        clock.advance(20)
        assert store.renew_lease(job.id, 1, 30).progress == {"trials": 3}
        clock.advance(20)
        assert store.lease_job("worker-2", 30) is None, "the lease was renewed"
        done = store.finish_job(job.id, 1, JobState.SUCCEEDED, result={"best": "r"})
        assert (done.state, done.result, done.owner) == (JobState.SUCCEEDED, {"best": "r"}, None)
        assert store.finish_job(job.id, 1, JobState.SUCCEEDED, result={"x": 1}) == done
        assert (done.started_at, done.finished_at) == (START, clock.now)
        assert store.check() == []

    def test_a_lost_job_is_taken_over_and_its_former_worker_shut_out(
        self, store: Store, clock: Clock
    ) -> None:
        job, _ = submit(store)
        assert store.lease_job("slow", 30)
        clock.advance(31)
        taken = store.lease_job("fast", 30)
        assert taken is not None
        assert (taken.id, taken.owner, taken.epoch) == (job.id, "fast", 2)
        for write in (
            lambda: store.renew_lease(job.id, 1, 30),
            lambda: store.update_progress(job.id, 1, {}),
            lambda: store.release_job(job.id, 1),
            lambda: store.finish_job(job.id, 1, JobState.FAILED, error={}),
        ):
            with pytest.raises(StaleLease, match=r"lease 1 has ended .*stop working on it"):
                write()
        assert store.get_job(job.id) == taken

    def test_a_job_that_kills_its_workers_fails(self, store: Store, clock: Clock) -> None:
        job, _ = submit(store)
        for epoch in range(1, MAX_TAKEOVERS + 2):
            leased = store.lease_job("victim", 30)
            assert leased is not None
            assert leased.epoch == epoch
            clock.advance(31)
        assert store.lease_job("victim", 30) is None
        failed = store.get_job(job.id)
        assert failed is not None
        assert (failed.state, failed.error) == (JobState.FAILED, LOST_TOO_OFTEN)

    def test_a_released_job_goes_to_the_next_worker(self, store: Store) -> None:
        job, _ = submit(store)
        assert store.lease_job("a", 30)
        assert store.release_job(job.id, 1).state is JobState.QUEUED
        again = store.lease_job("b", 30)
        assert again is not None
        assert again.epoch == 2

    def test_cancelling(self, store: Store, clock: Clock) -> None:
        waiting, _ = submit(store, 1)
        assert store.request_cancel(waiting.id).state is JobState.CANCELLED
        running, _ = submit(store, 2)
        assert store.lease_job("w", 30)
        assert not store.is_cancel_requested(running.id)
        assert store.request_cancel(running.id).state is JobState.CANCELLING
        assert store.is_cancel_requested(running.id)
        assert store.renew_lease(running.id, 1, 30).state is JobState.CANCELLING
        assert submit(store, 2)[1], "nobody joins work that is being given up"
        assert store.finish_job(running.id, 1, JobState.CANCELLED).done
        assert store.request_cancel(running.id).state is JobState.CANCELLED
        clock.advance(1)
        lost, _ = submit(store, 3)
        for _ in range(2):
            store.lease_job("w", 30)
        store.request_cancel(lost.id)
        clock.advance(60)
        store.lease_job("w", 30)
        found = store.get_job(lost.id)
        assert found is not None
        assert found.state is JobState.CANCELLED, "its worker vanished while cancelling"
        assert store.check() == []

    def test_release_of_a_cancelling_job_cancels_it(self, store: Store) -> None:
        job, _ = submit(store)
        store.lease_job("w", 30)
        store.request_cancel(job.id)
        assert store.release_job(job.id, 1).state is JobState.CANCELLED

    def test_a_finished_job_never_changes(self, store: Store) -> None:
        job, _ = submit(store)
        store.lease_job("w", 30)
        done = store.finish_job(job.id, 1, JobState.FAILED, error={"code": "x"})
        with pytest.raises(StaleLease, match="the job is FAILED"):
            store.finish_job(job.id, 1, JobState.SUCCEEDED, result={})
        assert store.request_cancel(job.id) == done

    def test_a_job_cannot_end_in_a_state_that_is_no_end(self, store: Store) -> None:
        job, _ = submit(store)
        store.lease_job("w", 30)
        with pytest.raises(BadTransition, match="QUEUED is not an end of a job"):
            store.finish_job(job.id, 1, JobState.QUEUED)
        with pytest.raises(BadTransition, match="asked for CANCELLED"):
            store.finish_job(job.id, 1, JobState.CANCELLED)

    def test_unknown_jobs_are_named(self, store: Store) -> None:
        for call in (
            lambda: store.request_cancel("nope"),
            lambda: store.append_event("nope", "x", {}),
            lambda: store.renew_lease("nope", 1, 1),
        ):
            with pytest.raises(UnknownJob, match="job 'nope': there is no such job"):
                call()
        assert not store.is_cancel_requested("nope")

    def test_events_are_kept_in_order_and_resumed_after_an_id(self, store: Store) -> None:
        job, _ = submit(store)
        other, _ = submit(store, 1)
        store.lease_job("w", 30)
        ids = [store.append_event(job.id, "trial", {"trial": n}) for n in range(3)]
        store.append_event(other.id, "trial", {})
        store.finish_job(job.id, 1, JobState.SUCCEEDED)
        events = store.events_after(job.id)
        kinds = [(e.kind, e.data.get("state", e.data.get("trial"))) for e in events]
        states = [("state", "QUEUED"), ("state", "RUNNING")]
        assert kinds == [*states, ("trial", 0), ("trial", 1), ("trial", 2), ("state", "SUCCEEDED")]
        assert [e.id for e in store.events_after(job.id, ids[0], limit=2)] == ids[1:]
        assert store.events_after(job.id, events[-1].id) == []

    def test_a_jobs_trials_lead_to_its_records(self, store: Store) -> None:
        job, _ = submit(store)
        records = [a_record(trial, None if trial == 2 else 1e-3) for trial in (1, 2, 3)]
        store.add(records)
        links = [(r.trial, r.key) for r in records]
        store.link_trials(job.id, links)
        store.link_trials(job.id, links[:1])
        assert store.job_trials(job.id) == [(r.trial, r) for r in records]
        assert store.job_trials(job.id, after=1, limit=1) == [(2, records[1])]
        with pytest.raises(NotRegistered, match="is not stored"):
            store.link_trials(job.id, [(4, "sha256:none")])

    def test_json_without_a_number_for_it_is_refused(self, store: Store) -> None:
        job, _ = submit(store)
        with pytest.raises(ValueError, match="Out of range float"):
            store.append_event(job.id, "trial", {"secs": float("nan")})

    # Export

    def test_a_selection_is_exported(self, store: Store) -> None:
        register(store, OTHER_WORKLOAD)
        store.add([a_record(1), a_record(2, None), a_record(3, workload_key=OTHER_WORKLOAD)])
        assert promoted(store, full(4, 1e-3))
        counts = {
            None: 4,
            Selection(workload_key=OTHER_WORKLOAD): 1,
            Selection(target_key="none"): 0,
            Selection(best_only=True): 1,
            Selection(ok_only=True, workload_key=WORKLOAD): 2,
        }
        for selection, count in counts.items():
            out = io.StringIO()
            assert store.export(out, selection) == count
            lines = out.getvalue().splitlines()
            assert sum('"kind":"record"' in line for line in lines) == count
