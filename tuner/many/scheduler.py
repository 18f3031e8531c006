"""The scheduler: the next batch of trials goes to the task with the greatest expected gain.

Every task gets one batch first, in the given order. A task ends when its search ends, or when its
expected gain after each of `QUIET_BATCHES` batches in a row is less than `WORTH_PER_SEC` of the
total per second of tuning. Its best is confirmed at that moment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..process.control import Control, MeasurementAborted
from ..session.report import TrialEvent
from ..session.tuning_run import MAX_RESERVED_SHARE, STOPPED
from .outside import OutsideErrors
from .report import BUG, ManyEvent
from .task import OpenSession, Task

log = logging.getLogger("tilewright.many")

WORTH_PER_SEC = 1e-3
"""The least expected gain per second of tuning that is worth it, as a fraction of the total."""

QUIET_BATCHES = 2

NOTHING_LEFT = f"the expected gain is below {WORTH_PER_SEC:.1%} of the total per second of tuning"


@dataclass
class Scheduler:
    """Runs `tasks` to their ends. An error of a task ends that task only, except for the errors of
    the caller's own functions, which `outside` knows: these propagate."""

    tasks: Sequence[Task]
    control: Control
    open_session: OpenSession
    should_stop: Callable[[], bool]
    outside: OutsideErrors
    on_event: Callable[[ManyEvent], None]
    _eta_secs: float | None = field(default=None, init=False)

    def run(self) -> str:
        """Run all tasks, and return the reason why the whole ended."""
        try:
            for task in self.tasks:
                if self._over() is None:
                    self._turn(task)
            while self._over() is None and self._open:
                self._turn(max(self._open, key=lambda task: task.gain))
            reason = self._over()
            for task in sorted(self._open, key=_weighted_secs, reverse=True):
                self._end(task, reason)
            return reason or self._all_ended()
        finally:
            for task in self.tasks:
                task.close()

    def on_trial(self, task: Task, event: TrialEvent) -> None:
        """Report one trial of a task."""
        self.on_event(ManyEvent(task.status(), event, self._eta_secs))

    @property
    def _open(self) -> list[Task]:
        return [task for task in self.tasks if task.open]

    def _over(self) -> str | None:
        """Return the reason to begin no further batch, or None."""
        if self.control.aborted or self.should_stop():
            return STOPPED
        if self.control.left_secs > self._reserved_secs():
            return None
        return str(self.control.used_up())

    def _reserved_secs(self, but: Task | None = None) -> float:
        """Return the time that the open tasks need for their ends, within the limit of one run,
        without the reserve of `but`."""
        reserved = sum(task.control.reserve_secs for task in self._open)
        limited = min(reserved, MAX_RESERVED_SHARE * self.control.allowed_secs)
        return max(limited - (0.0 if but is None else but.control.reserve_secs), 0.0)

    def _turn(self, task: Task) -> None:
        """Measure one batch of `task`, and end the task if too little is left to gain."""
        self._guarded(task, lambda: task.step(self.open_session))
        if task.open:
            total = sum(map(_weighted_secs, self.tasks))
            task.quiet_batches = 0 if task.gain >= WORTH_PER_SEC * total else task.quiet_batches + 1
            if task.quiet_batches >= QUIET_BATCHES:
                self._guarded(task, lambda: task.finish(NOTHING_LEFT))
        self._report(task)

    def _end(self, task: Task, reason: str | None) -> None:
        self._guarded(task, lambda: task.finish(reason))
        self._report(task)

    def _guarded(self, task: Task, act: Callable[[], None]) -> None:
        """Call `act`; an exception in it ends `task`."""
        task.control.others_reserve_secs = self._reserved_secs(but=task)
        try:
            act()
        except Exception as error:
            if isinstance(error, MeasurementAborted) and task.session is None:
                task.close()
                task.end_unbegun(str(error))
                return
            if self.outside.has_raised(error):
                raise
            task.fail(error)
            if task.error is not None and task.error.code == BUG:
                log.error("task %s failed in our own code", task.spec.name, exc_info=error)

    def _report(self, task: Task) -> None:
        known = [secs for secs in (other.eta_secs for other in self._open) if secs is not None]
        left = min(sum(known), max(self.control.left_secs, 0.0))
        self._eta_secs = left if known else None
        self.on_event(ManyEvent(task.status(), None, self._eta_secs))

    def _all_ended(self) -> str:
        failed = sum(task.best_secs is None for task in self.tasks)
        return "every task has ended" + (f"; {failed} without a best" if failed else "")


def _weighted_secs(task: Task) -> float:
    return task.spec.weight * (task.best_secs or 0.0)
