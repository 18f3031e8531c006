"""Progress of a run over many workloads: a table that changes on a terminal, lines elsewhere,
nothing with `--json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tilewright.service import timeouts
from tilewright.service.cli.output import Output
from tilewright.service.cli.progress import LineReporter, Silent, watched
from tilewright.service.cli.render import grid
from tilewright.service.units import clock, duration, percent
from tilewright.tuner.many.report import DONE, FAILED, TUNING, WAITING, ManyEvent, TaskStatus
from tilewright.tuner.process.control import STARTING, Activity

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tilewright.tuner.many.entries import TaskSpec

HEADER = ("task", "weight", "best", "of the bound", "share", "left to gain", "trials", "ETA")
LINES_AROUND = 8
"""Lines of a terminal that the rows of the table leave free."""


class ManyReporter(Protocol):
    """Receives the events of a run over many workloads, in its thread."""

    def on_event(self, event: ManyEvent) -> None:
        """Handle a trial, or a change of a task."""
        ...

    def on_activity(self, activity: Activity) -> None:
        """Handle an activity that begins."""
        ...


@contextmanager
def many_reporter(output: Output, tasks: Tasks) -> Iterator[ManyReporter]:
    """The reporter for this output. It updates `tasks`."""
    if output.as_json:
        yield Silent()
    elif output.live:
        with _table(output, tasks) as table:
            yield table
    else:
        lines = ManyLines(tasks)
        with watched(lines.activities):
            yield lines


@dataclass
class Tasks:
    """The latest status of each task, and the remaining time of the whole."""

    statuses: list[TaskStatus]
    eta_secs: float | None = None

    @classmethod
    def of(cls, specs: Sequence[TaskSpec]) -> Tasks:
        return cls(
            [
                TaskStatus(number, spec.name, spec.workload.key, spec.weight, WAITING, 0, 0)
                for number, spec in enumerate(specs)
            ]
        )

    def update(self, event: ManyEvent) -> None:
        self.statuses[event.task.number] = event.task
        self.eta_secs = event.eta_secs

    @property
    def total_secs(self) -> float:
        """The weighted seconds of the tasks that have a time."""
        return sum(status.weighted_secs or 0.0 for status in self.statuses)

    @property
    def ended(self) -> int:
        return sum(status.state in (DONE, FAILED) for status in self.statuses)

    def summary(self) -> str:
        """Format `3 of 25 tasks ended, total 1.2 ms, ETA 0:20`."""
        return (
            f"{self.ended} of {len(self.statuses)} tasks ended, total {duration(self.total_secs)},"
            f" ETA {clock(self.eta_secs)}"
        )

    def rows(self, most: int) -> list[list[str]]:
        """Return the cells of at most `most` tasks: running tasks first, then the largest
        shares."""
        order = sorted(
            self.statuses,
            key=lambda one: (one.state != TUNING, -(one.weighted_secs or 0.0), one.number),
        )
        shown = sorted(order[:most], key=lambda one: one.number)
        rows = [self._cells(status) for status in shown]
        if len(order) > most:
            rows.append([f"... and {len(order) - most} more", *[""] * (len(HEADER) - 1)])
        return rows

    def _cells(self, one: TaskStatus) -> list[str]:
        share = None if one.weighted_secs is None else one.weighted_secs / self.total_secs
        end = {WAITING: "waiting", TUNING: clock(one.eta_secs), DONE: "done", FAILED: "failed"}
        return [
            one.name,
            f"{one.weight:g}",
            duration(one.best_run_secs),
            percent(one.fraction_of_bound),
            percent(share),
            percent(one.left_to_gain),
            str(one.trials),
            end[one.state],
        ]


@dataclass
class ManyLines:
    """Progress lines for logs: the end of each task, and a summary every `PROGRESS_LINE_SECS`.
    `activities` reports long activities between them."""

    tasks: Tasks
    activities: LineReporter = field(default_factory=lambda: LineReporter(0.0))
    _last_line_at: float = -timeouts.PROGRESS_LINE_SECS

    def on_event(self, event: ManyEvent) -> None:
        task = event.task
        self.tasks.update(event)
        if task.state in (DONE, FAILED):
            best = f"{duration(task.best_run_secs)}, {percent(task.fraction_of_bound)} of the bound"
            result = best if task.state == DONE else "no best"
            self._line(f"{task.name}: {result}, {task.trials} trials ({task.reason})")
        elif self.activities.now() - self._last_line_at >= timeouts.PROGRESS_LINE_SECS:
            self._line(f"{self.tasks.summary()}; {task.name}: {duration(task.best_run_secs)}")

    def on_activity(self, activity: Activity) -> None:
        self.activities.on_activity(activity)

    def _line(self, text: str) -> None:
        self._last_line_at = self.activities.now()
        self.activities.say(text)


@contextmanager
def _table(output: Output, tasks: Tasks) -> Iterator[_Table]:
    from rich.live import Live

    console = output.notes()
    table = _Table(tasks, max(console.height - LINES_AROUND, 1))
    with Live(console=console, get_renderable=table.render, refresh_per_second=8, transient=True):
        yield table


@dataclass
class _Table:
    """The table of a terminal; another thread draws it."""

    tasks: Tasks
    most_rows: int
    activity: Activity = STARTING

    def on_event(self, event: ManyEvent) -> None:
        self.tasks.update(event)

    def on_activity(self, activity: Activity) -> None:
        self.activity = activity

    def render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        table = grid(HEADER, self.tasks.rows(self.most_rows))
        now = Text(f"{self.tasks.summary()}; {self.activity}", no_wrap=True, overflow="ellipsis")
        return Group(table, now)
