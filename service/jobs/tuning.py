"""One tuning run that stores its results, for the command `tune` and for workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tilewright.schedules.errors import TargetError
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers.grades import grade_of
from tilewright.service.answers.publish import Publish, Published, publish, result_document
from tilewright.service.jobs.options import REAL, TuneOptions
from tilewright.service.resolve import targets
from tilewright.tuner.many.entries import ManyEntry, distinct_tasks
from tilewright.tuner.session.report import PreviousTrial, TrialEvent, TuneReport

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.tuner.compiling.pool import CompilePool
    from tilewright.tuner.many.report import ManyEvent, ManyReport
    from tilewright.tuner.process.control import Control

# Start-up: registering a job loads no tuning code.


def check_measurable(target: Target, measurer: str) -> None:
    """Raise TargetError if `measurer` is this machine, and it cannot run code for `target`."""
    from tilewright.tuner.machine.native_target import native_target

    if measurer != REAL:
        return
    host = native_target(probe=False)
    if grade_of(target, host) is None:
        missing = sorted(set(target.features) - set(host.features))
        alike = target.triple == host.triple and missing
        reason = f"it lacks {', '.join(missing[:5])}" if alike else f"it is {host.triple}"
        raise TargetError(
            f"kernels for {target.cpu} ({target.triple}) cannot be timed on this machine"
            f" ({host.cpu}): {reason}"
        )


def tune_into(
    store: Store,
    workload: Workload,
    target: Target,
    options: TuneOptions,
    on_event: Callable[[dict[str, Any]], None],
    should_stop: Callable[[], bool] | None = None,
    *,
    control: Control | None = None,
    begun: Sequence[tuple[tuple[int, ...], str]] = (),
    pool: CompilePool | None = None,
    beside_check: Callable[[Trace], None] | None = None,
) -> TuneReport:
    """Tune a workload, and store the trials. `on_event` receives each stored trial as JSON data; if
    it raises an exception, the run ends. If `should_stop` returns True, the run ends after the
    current trial, and the incumbent is verified. `begun` has the trials that an earlier worker
    reported: candidate (sketch, then the index of each knob's value) and record key. `control`,
    `pool` and `beside_check` are passed to `tuner.tune`."""
    from tilewright.schedules.space import Candidate
    from tilewright.tuner.tuning import tune

    check_measurable(target, options.measurer)
    if options.measurer == REAL:
        targets.check_fits(workload)
    register(store, workload, target)
    return tune(
        workload,
        target,
        budget=options.budget,
        strategy=options.strategy,
        seed=options.seed,
        measurer=options.measurer,
        sink=store,
        on_event=lambda event: on_event(event_document(event)),
        should_stop=should_stop,
        fresh=options.fresh,
        control=control,
        previous_trials=[
            PreviousTrial(Candidate(place[0], place[1:]), key) for place, key in begun
        ],
        pool=pool,
        beside_check=beside_check,
    )


def tune_many_into(
    store: Store,
    entries: Sequence[ManyEntry],
    target: Target,
    options: TuneOptions,
    on_event: Callable[[ManyEvent], None],
    should_stop: Callable[[], bool] | None = None,
    *,
    control: Control | None = None,
) -> ManyReport:
    """Tune several workloads under one budget and store all results; see `tuner.tune_many`."""
    from tilewright.tuner.tuning import tune_many

    check_measurable(target, options.measurer)
    distinct_tasks(entries)  # an invalid list stores nothing
    for workload in {entry.workload.key: entry.workload for entry in entries}.values():
        register(store, workload, target)
    return tune_many(
        entries,
        target,
        budget=options.budget,
        strategy=options.strategy,
        seed=options.seed,
        measurer=options.measurer,
        sink=store,
        on_event=on_event,
        should_stop=should_stop,
        fresh=options.fresh,
        control=control,
    )


def many_document(
    store: Store,
    entries: Sequence[ManyEntry],
    target: Target,
    report: ManyReport,
    control: Control,
    publish: Publish = publish,
) -> dict[str, Any]:
    """Return the document of `tune --many --json`; the files of every best are stored. If the time
    budget of the run is used up, they are built on demand later."""
    in_time = _in_time(publish, control)
    documents = []
    for task in report.tasks:
        document = task.to_json()
        if task.report is not None:
            workload = entries[task.entries[0]].workload
            document = result_document(store, workload, target, task.report, in_time) | document
        documents.append(document)
    return {**report.to_json(), "tasks": documents, "wall_secs": control.wall_secs}


def whole_document(
    store: Store,
    workload: Workload,
    target: Target,
    report: TuneReport,
    control: Control,
    publish: Publish = publish,
) -> dict[str, Any]:
    """Return `result_document`. Its wall time includes building the files of the best. If the time
    budget is used up, the files are built on demand later."""
    document = result_document(store, workload, target, report, _in_time(publish, control))
    before = document["wall_secs_by_phase"]
    rest = max(control.wall_secs - sum(before.values()), 0.0)
    phases = {**before, "publish": rest}
    return {**document, "wall_secs": sum(phases.values()), "wall_secs_by_phase": phases}


def _in_time(publish: Publish, control: Control) -> Publish:
    """Return `publish` for the time before the run is killed."""

    def publish_in_time(*args: Any) -> Published:
        if control.killed_in_secs <= 0.0:
            return Published(warning="no time was left: the object file is built on demand")
        return publish(*args)

    return publish_in_time


def register(store: Store, workload: Workload, target: Target) -> None:
    """Store the workload and target to which records will refer."""
    store.register(
        workload.key,
        workload.to_json(),
        workload.name,
        int(workload.flops),
        target.key,
        target.to_json(),
    )


def event_document(event: TrialEvent) -> dict[str, Any]:
    """Return a trial event as JSON data."""
    document = asdict(event)
    document["result"]["status"] = str(event.result.status)
    document["result"]["run_secs"] = list(event.result.run_secs)
    if event.candidate is not None:
        document["candidate"] = [event.candidate.sketch, *event.candidate.setting]
    return document
