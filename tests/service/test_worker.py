"""The worker: a job runs to an end that is always told, and never by two workers at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.store_values import end_leases
from tests.support.service.jobs import MACHINE, queued, read
from tests.support.service.records import HOST, MATMUL, fake_run
from tilewright.db import Store, open_store
from tilewright.db.errors import StaleLease
from tilewright.db.values.job_states import LOST_TOO_OFTEN, MAX_FAILURES, JobState
from tilewright.db.values.jobs import StoredJob
from tilewright.schedules.errors import WorkloadError
from tilewright.service.answers.publish import Publish, Published
from tilewright.service.jobs import queue
from tilewright.service.jobs.options import TuneOptions
from tilewright.service.jobs.request import read_job, stored_job
from tilewright.service.jobs.run import JobContext, JobRun
from tilewright.service.jobs.worker import Worker
from tilewright.service.settings import Settings
from tilewright.tuner.process.control import MeasurementAborted

LEASE_SECS = 60.0


def worker(
    store: Store,
    run: Callable[..., Any] | None = None,
    stop: threading.Event | None = None,
    publish: Publish = lambda *_: Published({"object": {"key": "sha256:0"}}),
) -> Worker:
    context = JobContext(
        store, LEASE_SECS, stop or threading.Event(), run=run or fake_run(), publish=publish
    )
    return Worker(context, "test", poll_secs=0.01)


def test_a_request_survives_being_stored() -> None:
    document = {"workload": MATMUL, "target": HOST.to_json(), "seed": 7, "threads": 2}
    request = read_job(document, Settings())
    again = stored_job(request.to_json())
    assert again.workload.key == request.workload.key
    assert again.target == request.target
    assert again.target.threads == 2
    assert again.options == request.options
    assert again.flight_key == request.flight_key


def test_an_idle_worker_does_nothing(store: Store) -> None:
    assert not worker(store).work_once()


def test_a_job_is_run_and_its_report_kept(store: Store) -> None:
    job = queued(store)
    assert worker(store).work_once()
    done = read(store, job)
    assert done.state is JobState.SUCCEEDED
    assert done.result is not None
    assert done.result["best"]["trial"] == 3
    assert done.result["artefacts"] == {"object": {"key": "sha256:0"}}
    assert done.progress["trials_done"] == 3
    assert [trial for trial, _ in store.job_trials(job.id)] == [1, 2, 3]
    assert [e.kind for e in store.events_after(job.id)].count("trial") == 3


def test_reused_trials_are_listed_and_counted_but_no_news(store: Store) -> None:
    job = queued(store)
    assert worker(store, fake_run(trials=5, reused=3)).work_once()
    assert [trial for trial, _ in store.job_trials(job.id)] == [1, 2, 3, 4, 5]
    told = [e.data["trial"] for e in store.events_after(job.id) if e.kind == "trial"]
    assert told == [4, 5]
    done = read(store, job)
    assert done.progress["trials_done"] == 5
    assert done.progress["reused"] == 3


def test_a_cancelled_job_stops_at_its_next_trial_and_keeps_what_it_found(store: Store) -> None:
    job = queued(store)
    seen: list[int] = []

    def run(*args: Any, **steering: Any) -> Any:
        *_, should_stop = args

        def before(trial: int) -> None:
            seen.append(trial)
            if trial == 2:
                store.request_cancel(job.id)
                while not should_stop():  # the heartbeat looks four times a second
                    threading.Event().wait(0.01)

        return fake_run(trials=50, before=before)(*args, **steering)

    assert worker(store, run).work_once()
    cancelled = read(store, job)
    assert cancelled.state is JobState.CANCELLED
    assert cancelled.result is not None
    assert cancelled.result["best"]["verified"], "the best so far is in the answer"
    assert "built on demand" in cancelled.result["warning"]
    assert seen == [1, 2]
    assert len(store.job_trials(job.id)) == len(seen)


def test_a_worker_told_to_stop_gives_its_job_back(store: Store) -> None:
    job = queued(store)
    stop = threading.Event()

    def before(trial: int) -> None:
        if trial == 2:
            stop.set()

    worker(store, fake_run(before=before), stop).work()
    given_back = read(store, job)
    assert given_back.state is JobState.QUEUED
    assert given_back.owner is None
    assert worker(store).work_once()
    assert read(store, job).state is JobState.SUCCEEDED


def test_a_job_that_is_taken_up_goes_on_behind_its_trials_and_proposes_none_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilewright.service.jobs.tuning import tune_into
    from tilewright.tuner.search.strategies.annealing import AnnealingStrategy

    job = queued(store, measurer=f"simulated:{MACHINE.name}", budget={"trials": 20})
    stop, asked = threading.Event(), list[int]()
    ask = AnnealingStrategy.ask

    def counted(self: AnnealingStrategy, count: int) -> Any:
        found = ask(self, count)
        asked.append(len(self.ledger.proposed) - len(found))
        if len(self.ledger.proposed) > 8:
            stop.set()
        return found

    monkeypatch.setattr(AnnealingStrategy, "ask", counted)
    worker(store, tune_into, stop).work()
    before = read(store, job)
    done = before.progress["trials_done"]
    assert before.state is JobState.QUEUED
    assert 0 < done < 20
    kept = store.begun_trials(job.id)
    assert len(kept) == done
    asked.clear()
    seen: list[int] = []
    report_job = store.report_job

    def seen_by_readers(*args: Any, progress: Any = None, **more: Any) -> Any:
        seen.append(int((progress or {}).get("trials_done") or done))
        return report_job(*args, progress=progress, **more)

    monkeypatch.setattr(store, "report_job", seen_by_readers)
    assert worker(store, tune_into).work_once()
    assert min(asked) >= done, "what was told is not proposed again"
    assert seen == sorted(seen), "progress does not go back"
    assert read(store, job).progress["trials_done"] == 20
    assert store.begun_trials(job.id)[:done] == kept
    assert [n for n, _ in store.job_trials(job.id)] == list(range(1, 21))
    assert store.check() == []


def test_progress_stands_until_what_is_replayed_has_passed_it(store: Store) -> None:
    job = queued(store)
    stop = threading.Event()
    worker(store, fake_run(trials=5, before=lambda n: stop.set() if n == 4 else None), stop).work()
    assert read(store, job).progress["trials_done"] == 4
    seen: list[int] = []
    again = fake_run(
        trials=6, reused=4, before=lambda _: seen.append(read(store, job).progress["trials_done"])
    )
    assert worker(store, again).work_once()
    assert min(seen) == 4
    assert read(store, job).progress["trials_done"] == 6


def test_what_cannot_be_done_fails_the_job_with_a_problem(store: Store) -> None:
    job = queued(store)

    def run(*_: Any, **_steering: Any) -> Any:
        raise WorkloadError("no such thing", code="odd")

    assert worker(store, run).work_once()
    failed = read(store, job)
    assert failed.state is JobState.FAILED
    assert failed.error is not None
    assert failed.error["code"] == "odd"
    assert failed.error["detail"] == "no such thing"


def test_a_bug_ends_its_job_and_is_logged_and_reaches_no_other(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = queued(store), queued(store, seed=1)

    def run(
        store: Store, workload: Any, target: Any, options: Any, *more: Any, **steer: Any
    ) -> Any:
        if options.seed == 0:
            raise ZeroDivisionError("ours")
        return fake_run()(store, workload, target, options, *more, **steer)

    both = worker(store, run)
    assert both.work_once()
    assert both.work_once()
    failed = read(store, bad)
    assert failed.state is JobState.FAILED
    assert failed.error is not None
    assert failed.error["code"] == "internal_error"
    assert "ZeroDivisionError: ours" in caplog.text
    assert read(store, good).state is JobState.SUCCEEDED


def test_a_job_that_comes_back_is_opened_again_by_the_worker_that_had_it(store: Store) -> None:
    """As when the coordinator's lock was lost and taken again; nothing else waits."""
    job = queued(store)
    runs: list[int] = []

    def run(*args: Any, **steering: Any) -> Any:
        runs.append(1)
        if len(runs) == 1:
            end_leases(store, blameless=True)
        return fake_run()(*args, **steering)

    working = worker(store, run)
    for _ in range(2):
        assert working._open_one()
        [thread] = working._here.threads.values()
        thread.join()
    assert len(runs) == 2
    assert read(store, job).state is JobState.SUCCEEDED


def test_a_job_longer_than_its_lease_stays_with_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, renewed = [1000.0], threading.Event()

    def clock() -> float:
        return now[0]

    with open_store(str(tmp_path / "leases.sqlite"), lease_clock=clock) as store:
        job = queued(store)
        renew = store.renew_lease

        def seen(*args: Any) -> None:
            renew(*args)
            renewed.set()

        def before(trial: int) -> None:
            renewed.clear()
            now[0] += 0.6 * LEASE_SECS
            assert renewed.wait(60)
            assert store.lease_job("thief", 1.0) is None

        monkeypatch.setattr(store, "renew_lease", seen)
        context = JobContext(
            store, LEASE_SECS, threading.Event(), run=fake_run(before=before),
            publish=lambda *_: Published(), clock=clock,
        )  # fmt: skip
        assert Worker(context, "test").work_once()
        assert now[0] > 1000.0 + LEASE_SECS
        assert read(store, job).state is JobState.SUCCEEDED


def test_a_worker_that_lost_its_lease_leaves_the_job_alone(store: Store) -> None:
    job = queued(store)

    def before(trial: int) -> None:
        if trial == 1:
            end_leases(store)
            assert store.lease_job("other", 60.0) is not None

    assert worker(store, fake_run(before=before)).work_once()
    found = read(store, job)
    assert found.owner == "other"
    assert found.state is JobState.RUNNING


def test_a_cancelled_job_is_over_in_time_whatever_its_thread_is_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own Python code cannot be killed: what it brings afterwards is nobody's."""
    monkeypatch.setattr("tilewright.service.timeouts.CANCELLED_JOB_SECS", 0.0)
    job = queued(store)
    later = fake_run()

    def run(*args: Any, **steering: Any) -> Any:
        store.request_cancel(job.id)
        while not read(store, job).done:
            threading.Event().wait(0.01)
        assert read(store, job).state is JobState.CANCELLED
        return later(*args, **steering)

    working = worker(store, run)
    assert working.work_once()
    assert read(store, job).state is JobState.CANCELLED
    assert read(store, job).result is None
    assert [state for state, *_ in working.context.counters.take()["jobs"]] == ["CANCELLED"]


def test_native_work_that_is_killed_at_the_workers_end_cancels_nothing(store: Store) -> None:
    job = queued(store)

    def run(*_: Any, **_steering: Any) -> Any:
        raise MeasurementAborted("while the machine was probed")

    assert worker(store, run).work_once()
    assert read(store, job).state is JobState.QUEUED


def test_a_job_is_given_up_after_its_workers_ended_and_keeps_its_best(store: Store) -> None:
    """Each of them ended in the middle of its work, after it had found nothing new."""
    earlier = queued(store)
    assert worker(store, fake_run(trials=2)).work_once()
    job = queued(store, seed=1)
    leased = store.lease_job("first", LEASE_SECS)
    assert leased is not None
    links = [(trial, record.key) for trial, record in store.job_trials(earlier.id)]
    store.report_job(job.id, leased.epoch, trials=links)
    end_leases(store)
    options: list[TuneOptions] = []
    tuned = fake_run(trials=2, reused=2)

    counted: list[int] = []

    def dies(*args: Any, **steering: Any) -> Any:
        counted.append(read(store, job).failures)  # before anything is done
        tuned(*args, **steering)
        end_leases(store)
        raise StaleLease("this is how a thread hears that it is dead")

    def run(*args: Any, **steering: Any) -> Any:
        options.append(args[3])
        return tuned(*args, **steering)

    for _ in range(MAX_FAILURES):
        run_once(store, job, dies)
    assert counted == list(range(1, MAX_FAILURES + 1))
    assert read(store, job).state is JobState.RUNNING
    run_once(store, job, run)
    failed = read(store, job)
    assert (failed.state, failed.error) == (JobState.FAILED, LOST_TOO_OFTEN)
    assert failed.result is not None
    assert failed.result["best"]["verified"], "nothing of it is thrown away"
    assert [option.budget.trials for option in options] == [2], "nothing new is tried"


def run_once(store: Store, job: StoredJob, run: Callable[..., Any]) -> None:
    leased = store.lease_job("one more", LEASE_SECS, job_id=job.id)
    assert leased is not None
    JobRun(worker(store, run).context, leased).run_to_end()


def test_a_job_whose_workers_end_is_left_alone_for_a_while(store: Store) -> None:
    """A worker that ends meanwhile did not end by it."""
    now = [0.0]
    job = queued(store)
    for failures in range(queue.SUSPECT_FAILURES):
        leased = store.lease_job("victim", 5.0)
        assert leased is not None
        store.report_job(job.id, leased.epoch, failures=failures + 1)
        end_leases(store)
    working = Worker(
        JobContext(store, LEASE_SECS, threading.Event(), run=fake_run(), clock=lambda: now[0]),
        "test",
    )
    assert not working.work_once()
    now[0] = queue.rest_secs(queue.SUSPECT_FAILURES)
    assert working.work_once()
    assert read(store, job).state is JobState.SUCCEEDED
