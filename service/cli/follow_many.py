"""A job of many workloads at the terminal: its tasks as a table, and their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from tilewright.service import timeouts
from tilewright.service.cli.many_progress import HEADER, ManyReporter, Tasks, many_reporter
from tilewright.service.cli.output import Output
from tilewright.service.cli.render import grid
from tilewright.tuner.many.report import TUNING, WAITING, ManyEvent, TaskStatus
from tilewright.tuner.process.control import Activity

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tilewright.service.client import Client, Event

Document = Mapping[str, Any]


def tasks_of(job: Document) -> Tasks:
    """Return the tasks of a job's document, in order; those that were not begun are waiting."""
    begun = {task["name"]: _status(task) for task in job["progress"].get("tasks") or ()}
    listed = [
        TaskStatus(number, task["name"], task["workload_key"], task["weight"], WAITING, 0, 0)
        for number, task in enumerate(job["request"]["tasks"])
    ]
    return Tasks([begun.get(task.name, task) for task in listed], job["progress"].get("eta_secs"))


def _status(document: Document) -> TaskStatus:
    """Return the fields that this version knows: the service may have a newer one."""
    known = [f.name for f in fields(TaskStatus) if f.name in document]
    return TaskStatus(**{name: document[name] for name in known})


def tasks_table(job: Document) -> RenderableType:
    """Render a row for each task of a job."""
    tasks = tasks_of(job)
    return grid(HEADER, tasks.rows(len(tasks.statuses)))


@dataclass
class ManyFollower:
    """Reports the events of a job to `reporter`. An event of a trial does not say what is left to
    gain: the job is read for that, at most every `PROGRESS_LINE_SECS`."""

    client: Client
    job_id: str
    tasks: Tasks
    reporter: ManyReporter
    clock: Callable[[], float]
    _read_at: float = field(default=0.0, init=False)

    def on_event(self, event: Event) -> None:
        if event.kind == "activity":
            self.reporter.on_activity(Activity(**event.data))
        elif event.kind == "task":
            self._report(_status(event.data))
        elif event.kind == "trial":
            self._on_trial(event.data)

    def _on_trial(self, trial: Document) -> None:
        by_name = {status.name: status for status in self.tasks.statuses}
        known = by_name[trial["task"]]
        best_secs = trial["best_run_secs"]
        self._report(
            replace(
                known,
                state=TUNING,
                trials=trial["task_trial"],
                of_trials=trial["of_trials"],
                best_run_secs=best_secs,
                weighted_secs=None if best_secs is None else known.weight * best_secs,
                fraction_of_bound=trial["fraction_of_bound"],
                eta_secs=trial["eta_secs"],
            )
        )
        if self.clock() - self._read_at >= timeouts.PROGRESS_LINE_SECS:
            self._read_at = self.clock()
            self._read()

    def _read(self) -> None:
        found = tasks_of(self.client.status(self.job_id).document)
        self.tasks.eta_secs = found.eta_secs
        for status in found.statuses:
            if status.state == TUNING:
                self._report(status)

    def _report(self, status: TaskStatus) -> None:
        self.reporter.on_event(ManyEvent(status, None, self.tasks.eta_secs))


@contextmanager
def many_follower(
    client: Client, job: Document, output: Output, clock: Callable[[], float]
) -> Iterator[ManyFollower]:
    """Yield what handles the events of the job."""
    tasks = tasks_of(job)
    with many_reporter(output, tasks) as reporter:
        yield ManyFollower(client, job["id"], tasks, reporter, clock)
