"""What every store keeps to where jobs are concerned. Subclass it; see `store_contract.py`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.contracts.store_values import START, Clock, a_record, end_leases, note_event, submit
from tilewright.db import Store, open_store
from tilewright.db.errors import (
    BadTransition,
    IdempotencyConflict,
    NotAlone,
    NotRegistered,
    StaleLease,
    StoreHeld,
    UnknownJob,
)
from tilewright.db.values.job_states import LOST_TOO_OFTEN, MAX_FAILURES, JobState
from tilewright.db.values.jobs import JobQuota, Sharing, StoredJob


class JobStoreContract:
    """The fixture `clock` is the clock of `store`, which knows WORKLOAD on TARGET."""

    def test_an_owner_withdraws_from_a_job_that_others_want(self, store: Store) -> None:
        def ask(owner: str) -> StoredJob:
            job, _ = store.create_job(
                {"budget": {"trials": 5}}, body_hash="b", flight_key="f", owner=owner,
                quota=JobQuota(jobs=1, trials=9),
            )  # fmt: skip
            return job

        job = ask("ann")
        ask("bob")
        ask("cid")
        assert store.job_sharing([job.id])[job.id] == Sharing(("ann", "bob", "cid"))
        assert store.request_cancel(job.id, "ann").state is JobState.QUEUED
        assert store.request_cancel(job.id, "ann").state is JobState.QUEUED, "again: nothing"
        assert store.job_sharing([job.id])[job.id] == Sharing(("bob", "cid"), ("ann",))
        assert store.job_is_seen_by(job.id, "ann"), "who withdrew sees what becomes of it"
        other, _ = store.create_job(
            {"budget": {"trials": 9}}, body_hash="c", flight_key="g", owner="ann",
            quota=JobQuota(jobs=1, trials=9),
        )  # fmt: skip
        assert other.id != job.id, "it takes none of the owner's places any more"
        store.request_cancel(other.id, "ann")
        assert ask("ann").id == job.id
        assert store.job_sharing([job.id])[job.id] == Sharing(("ann", "bob", "cid"))
        with pytest.raises(NotAlone, match="not to dan"):
            store.request_cancel(job.id, "dan")
        leased = store.lease_job("worker", 60)
        assert leased is not None
        for owner in ("bob", "ann"):
            assert store.request_cancel(job.id, owner).state is JobState.RUNNING
        assert store.request_cancel(job.id, "cid").state is JobState.CANCELLING, "the last one"
        assert store.job_sharing([job.id, "none"])["none"] == Sharing()

    def test_the_oldest_open_job_of_each_state_is_known(self, store: Store, clock: Clock) -> None:
        assert store.oldest_jobs() == {}
        made = []
        for flight in "abc":
            clock.advance(10)
            made.append(store.create_job({}, body_hash=flight, flight_key=flight)[0])
        assert store.lease_job("worker", 60, job_id=made[1].id) is not None
        assert store.oldest_jobs() == {
            JobState.QUEUED: (made[0].id, made[0].created_at),
            JobState.RUNNING: (made[1].id, made[1].created_at),
        }
        store.request_cancel(made[0].id)
        assert store.oldest_jobs()[JobState.QUEUED] == (made[2].id, made[2].created_at)

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
        counts = store.job_counts()
        assert (counts.pop(JobState.QUEUED), counts.pop(JobState.CANCELLED)) == (4, 1)
        assert set(counts.values()) == {0}

    def test_a_job_runs_from_lease_to_result(self, store: Store, clock: Clock) -> None:
        job, _ = submit(store)
        leased = store.lease_job("worker-1", 30)
        assert leased is not None
        assert (leased.id, leased.state, leased.epoch) == (job.id, JobState.RUNNING, 1)
        assert store.lease_job("worker-2", 30) is None, "one worker a job"
        assert submit(store) == (leased, False), "running work is joined too"
        store.report_job(job.id, 1, progress={"trials": 3})
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
            lambda: store.report_job(job.id, 1, progress={}),
            lambda: store.release_job(job.id, 1),
            lambda: store.finish_job(job.id, 1, JobState.FAILED, error={}),
        ):
            with pytest.raises(StaleLease, match=r"lease 1 has ended .*stop working on it"):
                write()
        assert store.get_job(job.id) == taken

    def test_a_job_that_kills_its_workers_fails(self, store: Store, clock: Clock) -> None:
        job, _ = submit(store)
        for epoch in range(1, MAX_FAILURES + 2):
            leased = store.lease_job("victim", 30)
            assert leased is not None, "the last one may conclude it"
            assert (leased.epoch, leased.failures) == (epoch, epoch - 1)
            store.report_job(job.id, epoch, failures=epoch)  # at work
            clock.advance(31)
        assert store.lease_job("victim", 30) is None
        failed = store.get_job(job.id)
        assert failed is not None
        assert (failed.state, failed.error) == (JobState.FAILED, LOST_TOO_OFTEN)

    def test_workers_that_ended_while_the_job_waited_count_for_nothing(
        self, store: Store, clock: Clock
    ) -> None:
        submit(store)
        for _ in range(2 * MAX_FAILURES):
            leased = store.lease_job("killed", 30)
            assert leased is not None
            assert leased.failures == 0
            store.report_job(leased.id, leased.epoch, failures=1)
            store.report_job(leased.id, leased.epoch, failures=0)  # another has its turn
            clock.advance(31)

    def test_a_worker_that_was_ended_from_outside_counts_for_nothing(self, store: Store) -> None:
        job, _ = submit(store)
        for blameless, failures in ((True, 0), (False, 1), (True, 1)):
            leased = store.lease_job("killed", 30)
            assert leased is not None
            store.report_job(job.id, leased.epoch, failures=leased.failures + 1)
            end_leases(store, blameless=blameless)
            [waiting] = store.job_queue()
            assert (waiting.lost, waiting.failures) == (True, failures)

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
        with pytest.raises(BadTransition, match="requested CANCELLED"):
            store.finish_job(job.id, 1, JobState.CANCELLED)

    def test_unknown_jobs_are_named(self, store: Store) -> None:
        for call in (
            lambda: store.request_cancel("nope"),
            lambda: note_event(store, "nope", 1, "x", {}),
            lambda: store.renew_lease("nope", 1, 1),
        ):
            with pytest.raises(UnknownJob, match="job 'nope': there is no such job"):
                call()
        assert not store.is_cancel_requested("nope")

    def test_events_are_kept_in_order_and_resumed_after_an_id(self, store: Store) -> None:
        job, _ = submit(store)
        other, _ = submit(store, 1)
        store.lease_job("w", 30)
        ids = [note_event(store, job.id, 1, "trial", {"trial": n}) for n in range(3)]
        store.lease_job("w", 30)
        note_event(store, other.id, 1, "trial", {})
        store.finish_job(job.id, 1, JobState.SUCCEEDED)
        events = store.events_after(job.id)
        kinds = [(e.kind, e.data.get("state", e.data.get("trial"))) for e in events]
        states = [("state", "QUEUED"), ("state", "RUNNING")]
        assert kinds == [*states, ("trial", 0), ("trial", 1), ("trial", 2), ("state", "SUCCEEDED")]
        assert [e.id for e in store.events_after(job.id, ids[0], limit=2)] == ids[1:]
        assert store.events_after(job.id, events[-1].id) == []

    def test_a_jobs_trials_lead_to_its_records(self, store: Store) -> None:
        job, _ = submit(store)
        store.lease_job("w", 30)
        records = [a_record(trial, None if trial == 2 else 1e-3) for trial in (1, 2, 3)]
        store.add(records)
        links = [(r.trial, r.key) for r in records]
        store.report_job(job.id, 1, trials=links)
        store.report_job(job.id, 1, trials=links[:1])
        assert store.job_trials(job.id) == [(r.trial, r) for r in records]
        assert store.job_trials(job.id, after=1, limit=1) == [(2, records[1])]
        own = records[0].workload_key
        assert store.job_trials(job.id, workload_key=own) == store.job_trials(job.id)
        assert store.job_trials(job.id, workload_key="0" * 64) == []
        lines = store.catalogue.trials(job.id, 0, 10, own)
        assert [(line.trial, line.workload_key) for line in lines] == [(n, own) for n in (1, 2, 3)]
        assert store.catalogue.trials(job.id, 0, 10, "0" * 64) == []
        with pytest.raises(NotRegistered, match="is not stored"):
            store.report_job(job.id, 1, trials=[(4, "sha256:none")])

    def test_json_without_a_number_for_it_is_refused(self, store: Store) -> None:
        job, _ = submit(store)
        store.lease_job("w", 30)
        with pytest.raises(ValueError, match="Out of range float"):
            note_event(store, job.id, 1, "trial", {"secs": float("nan")})

    # Priorities

    def test_higher_priority_goes_first_then_who_came_first(
        self, store: Store, clock: Clock
    ) -> None:
        clock.advance(10)
        first, _ = submit(store, 0)
        clock.advance(-5)  # a clock set back: the order of arrival is not the order of ids
        second, _ = submit(store, 1)
        urgent, _ = submit(store, 2, priority=5)
        assert second.id < first.id
        assert [job.id for job in store.job_queue()] == [urgent.id, first.id, second.id]
        raised, created = submit(store, 1, priority=9)
        assert (raised.id, raised.priority, created) == (second.id, 9, False)
        assert submit(store, 1, priority=-1)[0].priority == 9, "joining lowers nothing"
        taken = [store.lease_job("w", 30) for _ in range(3)]
        assert [job.id for job in taken if job] == [second.id, urgent.id, first.id]
        assert store.job_queue() == []

    # Whose a job is

    def test_only_deaths_without_a_new_trial_between_count(
        self, store: Store, clock: Clock
    ) -> None:
        job, _ = submit(store)
        for trial in range(1, 3 * MAX_FAILURES):
            leased = store.lease_job("victim", 30)
            assert leased is not None, "a death after a new trial is forgiven"
            record = a_record(trial)
            store.add([record])
            store.report_job(job.id, leased.epoch, failures=leased.failures + 1)
            store.report_job(
                job.id, leased.epoch, trials=[(trial, record.key), (1, a_record(1).key)]
            )
            clock.advance(31)
        found = store.get_job(job.id)
        assert found is not None
        assert found.failures == 0
        for failures in range(1, MAX_FAILURES + 2):
            leased = store.lease_job("victim", 30)
            assert leased is not None
            store.report_job(job.id, leased.epoch, failures=failures)
            store.report_job(job.id, leased.epoch, trials=[(1, a_record(1).key)])  # no news
            clock.advance(31)
        assert store.lease_job("victim", 30) is None
        assert [j.id for j in store.list_jobs(state=JobState.FAILED).items] == [job.id]
        assert store.check() == []

    def test_a_clock_set_back_does_not_keep_a_job_from_the_next_worker(
        self, store: Store, clock: Clock
    ) -> None:
        clock.advance(3600)  # an hour ahead
        job, _ = submit(store)
        store.lease_job("killed", 30)
        clock.advance(-3600)  # set right
        taken = store.lease_job("next", 30)
        assert taken is not None
        assert (taken.id, taken.epoch) == (job.id, 2)

    def test_the_coordinator_takes_over_at_once(self, store: Store) -> None:
        job, _ = submit(store)
        old = store.lease_job("gone", 30)
        assert old is not None
        with open_store(store.url, lease_clock=START.timestamp) as successor:
            successor.coordinate()
            assert successor.coordinates()
            with pytest.raises(StoreHeld):
                store.coordinate()
            assert not store.coordinates()
            with pytest.raises(StaleLease):
                store.renew_lease(job.id, old.epoch, 30)
            taken = successor.lease_job("next", 30)
            assert taken is not None
            assert taken.epoch > old.epoch
            assert successor.lease_job("next", 30) is None
            successor.coordinate()
            assert successor.renew_lease(job.id, taken.epoch, 30), "it ends no lease of its own"
            with pytest.raises(StaleLease):
                store.finish_job(job.id, old.epoch, JobState.SUCCEEDED)
        store.coordinate()
        assert store.coordinates()
        assert store.check() == []

    def test_every_write_to_a_job_names_its_lease(self, store: Store, clock: Clock) -> None:
        job, _ = submit(store)
        store.lease_job("slow", 30)
        clock.advance(31)
        store.lease_job("fast", 30)
        record = a_record()
        store.add([record])
        before = store.events_after(job.id)
        for write in (
            lambda: note_event(store, job.id, 1, "trial", {}),
            lambda: store.report_job(job.id, 1, trials=[(1, record.key)]),
            lambda: store.report_job(job.id, 1, events=[("x", {})], progress={"a": 1}),
        ):
            with pytest.raises(StaleLease):
                write()
        assert store.events_after(job.id) == before
        assert store.job_trials(job.id) == []

    def test_a_report_is_kept_whole_or_not_at_all(self, store: Store) -> None:
        job, _ = submit(store)
        store.lease_job("w", 30)
        store.add([a_record()])
        with pytest.raises(NotRegistered):
            store.report_job(
                job.id,
                1,
                trials=[(1, a_record().key), (2, "sha256:none")],
                events=[("trial", {})],
                progress={"trials": 2},
            )
        assert store.job_trials(job.id) == []
        (one, two) = store.report_job(
            job.id, 1, trials=[(1, a_record().key)], events=[("trial", {}), ("note", {"é": "\0"})]
        )
        assert [e.id for e in store.events_after(job.id)][-2:] == [one, two]
        assert store.events_after(job.id)[-1].data == {"é": "\0"}
        assert store.report_job(job.id, 1) == []

    def test_a_job_that_is_taken_up_knows_what_was_asked(self, store: Store) -> None:
        job, _ = submit(store)
        store.lease_job("w", 30)
        records = [a_record(n) for n in range(1, 6)]
        store.add(records)
        keys = [record.key for record in records]
        assert store.begun_trials(job.id) == []
        first = [(1, keys[0]), (2, keys[1])]
        store.report_job(job.id, 1, trials=first, candidates={1: [0, 3, 4], 2: [1, 0, 0, 7]})
        assert store.begun_trials(job.id) == [((0, 3, 4), keys[0]), ((1, 0, 0, 7), keys[1])]
        store.report_job(job.id, 1, trials=first, candidates={1: [9, 9], 2: [9, 9]})  # no news
        store.report_job(job.id, 1, trials=[(4, keys[3])], candidates={4: [0, 0]})
        assert len(store.begun_trials(job.id)) == 2, "one is missing"
        store.report_job(job.id, 1, trials=[(3, keys[2])])
        assert len(store.begun_trials(job.id)) == 2, "of one it is not known"
        assert [trial for trial, _ in store.job_trials(job.id)] == [1, 2, 3, 4]
        assert store.check() == []

    def test_a_candidate_that_was_changed_is_not_gone_by(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        job, _ = submit(store)
        store.lease_job("w", 30)
        store.add([a_record(1), a_record(2)])
        trials = [(1, a_record(1).key), (2, a_record(2).key)]
        store.report_job(job.id, 1, trials=trials, candidates={1: [0, 1], 2: [0, 2]})
        damage("UPDATE job_trial SET candidate = '[0,5]' WHERE trial = 2")
        assert store.begun_trials(job.id) == [((0, 1), a_record(1).key)]
        assert [problem.subject for problem in store.check()] == [f"{job.id}/2"]

    # Damage

    @pytest.mark.parametrize(
        "change",
        [
            "request = '{'",
            "progress = '[1]'",
            "state = 'SUCCEEDED'",
            "created_at = 'yesterday'",
            "epoch = 7",
            "priority = 99",
            "row_sha256 = ''",
        ],
    )
    def test_a_damaged_job_harms_nobody_but_itself(
        self, store: Store, damage: Callable[[str], None], change: str
    ) -> None:
        broken, _ = submit(store, 1, idempotency_key="k")
        sound, _ = submit(store, 2)
        damage(f"UPDATE job SET {change} WHERE id = '{broken.id}'")
        assert [job.id for job in store.list_jobs().items] == [sound.id]
        assert store.get_job(broken.id) is None
        assert sum(store.job_counts().values()) == 2
        leased = store.lease_job("w", 30)
        assert leased is not None
        assert leased.id == sound.id
        assert store.lease_job("w", 30) is None
        with pytest.raises(UnknownJob, match="its row is damaged"):
            store.request_cancel(broken.id)
        with pytest.raises(StaleLease, match="its row is damaged"):
            store.renew_lease(broken.id, 0, 30)
        again, created = submit(store, 1, idempotency_key="k")
        assert created, "equal work does not join it"
        assert submit(store, 1, idempotency_key="k") == (again, False)
        assert ("job", broken.id) in {(p.kind, p.subject) for p in store.check()}

    def test_a_damaged_event_or_trial_is_left_out(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        job, _ = submit(store)
        store.lease_job("w", 30)
        store.add([a_record(1), a_record(2)])
        trials = [(n, a_record(n).key) for n in (1, 2)]
        numbers = store.report_job(
            job.id, 1, trials=trials, events=[("trial", {"trial": n}) for n in range(4)]
        )
        damage(f"UPDATE job_event SET data = '{{' WHERE id IN ({numbers[0]}, {numbers[1]})")
        damage("UPDATE job_trial SET epoch = 0 WHERE trial = 1")
        assert [e.data["trial"] for e in store.events_after(job.id, numbers[0] - 1)] == [2, 3]
        assert [e.id for e in store.events_after(job.id, numbers[0] - 1, limit=1)] == [numbers[2]]
        assert [trial for trial, _ in store.job_trials(job.id)] == [2]
        found = {(p.kind, p.subject) for p in store.check()}
        assert found == {
            ("event", str(numbers[0])),
            ("event", str(numbers[1])),
            ("job_trial", f"{job.id}/1"),
        }

    # Invariants of `check`

    def test_check_tells_of_what_jobs_were_told_and_is_not_there(
        self, store: Store, damage: Callable[[str], None]
    ) -> None:
        job, _ = submit(store)
        store.lease_job("w", 30)
        store.add([a_record(1), a_record(3)])
        told = {"trial": 9, "record_key": "sha256:gone"}
        store.report_job(job.id, 1, trials=[(1, a_record(1).key), (3, a_record(3).key)])
        note_event(store, job.id, 1, "trial", told)
        store.finish_job(job.id, 1, JobState.SUCCEEDED)
        found = store.check(acknowledged=[a_record(1).key, "sha256:lost"])
        assert [(p.invariant, p.kind, p.subject) for p in found] == [
            ("I1", "missing", "sha256:lost"),
            ("I1", "missing", "sha256:gone"),
            ("I6", "job", job.id),
        ]

    def test_check_tells_of_a_write_under_a_lease_that_was_over(
        self, store: Store, clock: Clock, damage: Callable[[str], None]
    ) -> None:
        job, _ = submit(store)
        store.lease_job("slow", 30)
        (late,) = store.report_job(job.id, 1, events=[("trial", {})])
        clock.advance(31)
        store.lease_job("fast", 30)
        damage(
            "INSERT INTO job_event (job_id, epoch, kind, data, created_at, row_sha256) SELECT"
            f" job_id, epoch, kind, data, created_at, row_sha256 FROM job_event WHERE id = {late}"
        )
        assert [(p.invariant, p.kind) for p in store.check()] == [("I5", "event")]
