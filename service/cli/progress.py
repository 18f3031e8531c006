"""Progress of a run: a bar on a terminal, lines elsewhere, nothing with `--json`. Bar and lines
show the current activity and the expected end of the whole run."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.service import timeouts
from tilewright.service.cli.output import Output
from tilewright.service.units import clock
from tilewright.tuner.process.control import STARTING, Activity

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Reporter(Protocol):
    """Receives the events of a run, in the run's thread."""

    def on_event(self, event: dict[str, Any]) -> None:
        """Handle a trial, as JSON data."""
        ...

    def on_activity(self, activity: Activity) -> None:
        """Handle an activity that begins."""
        ...


@contextmanager
def trial_reporter(output: Output, flops: float, trials: int) -> Iterator[Reporter]:
    """Yield the reporter for this output."""
    if output.as_json:
        yield Silent()
    elif output.live:
        with _bar(output, flops, trials) as bar:
            yield bar
    else:
        lines = LineReporter(flops)
        with watched(lines):
            yield lines


class Silent:
    """Reports nothing."""

    def on_event(self, event: object) -> None:
        """Ignore the event."""

    def on_activity(self, activity: Activity) -> None:
        """Ignore the activity."""


@contextmanager
def watched(lines: LineReporter) -> Iterator[None]:
    """Let a thread report the activities of `lines` during the block."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(timeouts.PROGRESS_POLL_SECS):
            lines.look()

    lines.on_activity(STARTING)
    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def _write(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


@dataclass
class LineReporter:
    """Progress lines for logs. A line reports the number of reused trials, the first measured
    trial, every new best, or one trial every `PROGRESS_LINE_SECS`. The first activity is reported,
    and later any activity that has lasted `ACTIVITY_LINE_SECS`. Another thread calls `look` several
    times a second."""

    flops: float
    write: Callable[[str], None] = _write
    now: Callable[[], float] = time.monotonic
    _last_line_at: float = -timeouts.PROGRESS_LINE_SECS
    _reused: int = 0
    _activity: Activity | None = None
    _since: float = 0.0
    _last_text: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def on_event(self, event: dict[str, Any]) -> None:
        with self._lock:
            finished = event["trial"] >= event["of_trials"]
            if event["reused"]:
                self._reused += 1
                if not finished:
                    return
            if self._reused:
                self.write(f"{self._reused} trials reused from earlier runs")
                self._reused = 0
            if (
                event["is_best"]
                or finished
                or self.now() - self._last_line_at >= timeouts.PROGRESS_LINE_SECS
            ):
                self._last_line_at = self.now()
                from tilewright.service.cli.render import trial_line  # Start-up: it loads rich

                self.write(trial_line(event, self.flops))

    def say(self, line: str) -> None:
        """Write a line of another kind; activities wait as after a trial."""
        with self._lock:
            self._last_line_at = self.now()
            self.write(line)

    def on_activity(self, activity: Activity) -> None:
        with self._lock:
            if self._activity is None or activity.text != self._activity.text:
                self._since = self.now()
            self._activity = activity

    def look(self) -> None:
        """Report the current activity if it is new and nothing was reported recently."""
        with self._lock:
            now, activity = self.now(), self._activity
            if activity is None or str(activity) == self._last_text:
                return
            quiet_secs = (
                timeouts.PROGRESS_LINE_SECS if self._last_text.startswith(activity.text) else 0.0
            )
            if not self._last_text or (
                now - self._since >= timeouts.ACTIVITY_LINE_SECS
                and now - self._last_line_at >= quiet_secs
            ):
                self._report(activity)

    def _report(self, activity: Activity) -> None:
        self._last_text, self._last_line_at = str(activity), self.now()
        self.write(f"{activity} ...")


@contextmanager
def _bar(output: Output, flops: float, trials: int) -> Iterator[Reporter]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn
    from rich.text import Text

    class Left(ProgressColumn):
        """A countdown to the last predicted end."""

        def render(self, task: Any) -> Text:
            end = task.fields["end"]
            left = None if end is None else max(end - time.monotonic(), 0.0)
            return Text(f"ETA {clock(left)}", style="dim")

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[best]}"),
        TextColumn("{task.fields[reused]}"),
        TextColumn("{task.fields[failed]}"),
        Left(),
    )
    with Progress(*columns, console=output.notes(), transient=True) as progress:
        task = progress.add_task(
            str(STARTING), total=trials, best="", reused="", failed="", end=None
        )
        yield _Bar(progress, task, flops)


@dataclass
class _Bar:
    progress: Progress
    task: TaskID
    flops: float
    failed: int = 0
    reused: int = 0

    def on_event(self, event: dict[str, Any]) -> None:
        from tilewright.service.cli.render import best_text  # Start-up: it loads rich

        self.reused += event["reused"]
        self.failed += event["result"]["status"] != "ok"
        eta = event["eta_secs"]
        self.progress.update(
            self.task,
            completed=event["trial"],
            total=event["of_trials"],
            best=f"[green]best {best_text(event, self.flops)}",
            reused=f"{self.reused} reused" if self.reused else "",
            failed=f"[red]{self.failed} failed" if self.failed else "",
            end=None if eta is None else time.monotonic() + eta,
        )

    def on_activity(self, activity: Activity) -> None:
        self.progress.update(self.task, description=str(activity))
        if activity.left_secs is not None:
            self.progress.update(self.task, end=time.monotonic() + activity.left_secs)
