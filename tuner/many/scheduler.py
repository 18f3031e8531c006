"""Divides a budget among tasks: the next batch of trials goes to the task with the greatest
expected gain.

Every task gets a first block of trials before any task gets a second one, in the given order. If
the time budget may not suffice for that, a first block is one trial, the first choice. A task that
cannot be served with its end is not begun; tasks before it end to make room for it.

Without a time budget, a task ends when its search ends, or when its expected gain after each of
`QUIET_BATCHES` batches in a row is less than `WORTH_PER_SEC` of the total per second of tuning.
With one, the rest of the budget has no better use than the task with the greatest gain, however
small.

If other machines measure, several tasks are at work at the same time. Each turn and each end is
then the work of a thread. Only one thread runs; the others wait for machines (`TaskThreads`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import ceil, inf

from ..measure.protocol import MeasuresElsewhere
from ..process.control import Control, MeasurementAborted
from ..session.report import TrialEvent
from ..session.stopping_rule import MAX_BATCH
from ..session.tuning_run import STOPPED
from .costs import TaskCosts
from .outside import OutsideErrors
from .report import BUG, TUNING, WAITING, ManyEvent
from .task import OpenSession, Task
from .threads import TaskThreads

log = logging.getLogger("tilewright.many")

WORTH_PER_SEC = 1e-3
"""The least expected gain per second of tuning that is worth it, as a fraction of the total."""

QUIET_BATCHES = 2

RACE_GAIN = 0.02
"""Relative gain that is expected of a final race: candidates within the noise of a single time."""

TASKS_PER_MACHINE = 2
"""One task that measures and one that waits for a machine, so that no machine waits for a task that
proposes, is raced or is checked in full."""

NOTHING_LEFT = f"the expected gain is below {WORTH_PER_SEC:.1%} of the total per second of tuning"


@dataclass
class Scheduler:
    """Runs `tasks` to their ends. An error of a task ends that task only, except for the errors of
    the caller's own functions, which `outside` knows: these propagate."""

    tasks: Sequence[Task]
    control: Control
    costs: TaskCosts
    threads: TaskThreads
    open_session: OpenSession
    should_stop: Callable[[], bool]
    outside: OutsideErrors
    on_event: Callable[[ManyEvent], None]
    _eta_secs: float | None = field(default=None, init=False)
    _ending: Task | None = field(default=None, init=False)
    """The task whose full check runs beside the turns of other tasks."""
    _machines: int = field(default=1, init=False)
    """The number of machines that measure."""
    _most_at_work: int = field(default=1, init=False)
    """The number of tasks that may be at work at the same time."""

    def run(self) -> str:
        """Run all tasks, and return the reason why the whole ended."""
        try:
            reason = self._turns_and_ends()
            for task in self._waiting:
                self._end(task, reason)
            return reason or self._all_ended()
        finally:
            self.threads.end()
            for task in self.tasks:
                task.close()

    def _turns_and_ends(self) -> str | None:
        """Give tasks turns while there is time, and end the tasks that were begun. Return why there
        are no more turns, or None if every task has ended.

        An end may show that the other ends take less time than was reserved, so turns may follow.
        """
        while True:
            self._look_at_work()
            if len(self.threads.at_work) >= self._most_at_work:
                self.threads.wait()
                continue
            reason = self._over()
            task = self._next() if reason is None else None
            if task is not None:
                self._begin_turn(task)
                continue
            if reason is None and self._waiting:
                reason = f"{self.control.allowed_secs:g} s do not suffice for every task"
            if idle := self._idle:
                task = self._first_to_end(idle)
                self._work(task, partial(self._end, task, reason))
            elif self.threads.at_work:
                self.threads.wait()
            elif self._ending is not None:
                self._finish_ending()
            else:
                return reason

    def _work(self, task: Task, act: Callable[[], None]) -> None:
        """Do the work of a turn or an end, in a thread if other tasks may be at work beside it."""
        if self._most_at_work > 1:
            self.threads.start(task.control, act)
        else:
            act()

    def _look_at_work(self) -> None:
        """Count the machines, and tell the tasks at work how much time the others reserve now."""
        others = self._other_machines()
        self._machines = max(others, 1)
        self._most_at_work = max(TASKS_PER_MACHINE * others, 1)
        at_work = self.threads.at_work
        for task in [task for task in self._begun if task.control in at_work]:
            task.control.others_reserve_secs = self._reserved_secs(but=task)

    def _other_machines(self) -> int:
        """Return the number of other machines that measure for the begun tasks, 0 if this one
        does."""
        measurers = [task.session.run.measurer for task in self._begun if task.session is not None]
        return max((m.machines for m in measurers if isinstance(m, MeasuresElsewhere)), default=0)

    def _first_to_end(self, tasks: Sequence[Task]) -> Task:
        """Return the task that would gain least, or if there may be too little time for all ends,
        the one with the most weighted time."""
        if not self._has_limit or self._unreserved_secs() < -self.costs.block_secs:
            return max(tasks, key=_weighted_secs)
        return min(tasks, key=lambda task: task.gain)

    def on_trial(self, task: Task, event: TrialEvent) -> None:
        """Report one trial of a task."""
        if event.trial == 1 and not event.reused:
            self.costs.firsts.append(task.control.used_secs)
        self.on_event(ManyEvent(task.status(), event, self._eta_secs))

    # -- which task is next

    @property
    def _open(self) -> list[Task]:
        return [task for task in self.tasks if task.open]

    @property
    def _waiting(self) -> list[Task]:
        at_work = self.threads.at_work
        return [
            task for task in self.tasks if task.state == WAITING and task.control not in at_work
        ]

    @property
    def _begun(self) -> list[Task]:
        """The tasks that had a turn and have no result yet."""
        return [task for task in self.tasks if task.state == TUNING]

    @property
    def _idle(self) -> list[Task]:
        """The begun tasks that may have another turn now."""
        at_work = self.threads.at_work
        return [task for task in self._begun if task.open and task.control not in at_work]

    def _over(self) -> str | None:
        """Return the reason to begin no further batch, or None."""
        if self.control.aborted or self.should_stop():
            return STOPPED
        if self.control.left_secs > self._reserved_secs():
            return None
        return str(self.control.used_up())

    def _next(self) -> Task | None:
        """Return the task of the next turn, or None if no turn is left, or if a task must end to
        leave time for one that waits."""
        if waiting := self._waiting:
            return waiting[0] if self._serves_next else None
        return max(self._idle, key=lambda task: task.gain, default=None)

    @property
    def _serves_next(self) -> bool:
        """Whether a task waits, and the time suffices for its first choice and its end. The first
        task of all is always served."""
        waiting = self._waiting
        if len(waiting) == len(self.tasks):
            return True
        return bool(waiting) and self._unreserved_secs() > self._secs_of(1)

    def _first_block(self) -> int:
        """Return the largest number of trials of a first block: one, unless the time suffices for
        a longer one and the first choices of all tasks that wait."""
        needed = self._secs_of(len(self._waiting)) + self.costs.block_secs - self.costs.first_secs
        return MAX_BATCH if self._unreserved_secs() > needed else 1

    # -- time

    @property
    def _has_limit(self) -> bool:
        return self.control.allowed_secs < inf

    def _unreserved_secs(self) -> float:
        """Return the time without the ends of the begun tasks."""
        return self.control.left_secs - self._reserved_secs()

    def _secs_of(self, count: int) -> float:
        """Return the expected time of `count` tasks with one trial each and their full checks."""
        predicted = [task.session.run.check_secs for task in self._begun if task.session]
        each_secs = self.costs.first_secs + self.costs.end_secs(predicted)
        return ceil(count / self._machines) * each_secs

    def _side_by_side(self, secs: Sequence[float]) -> float:
        """Return the time that work of these seconds takes at most, if every machine does the next
        part of it when it has finished one."""
        longest_secs = max(secs, default=0.0)
        return longest_secs + (sum(secs) - longest_secs) / self._machines

    def _reserved_secs(self, but: Task | None = None) -> float:
        """Return the time that the begun tasks, without `but`, need for their ends.

        One of the ends may take longer than expected.
        """
        total = self._total_secs()
        for task in self._begun:
            task.control.races = self._is_race_worth(task, total)
            task.reserve_end()
        others = [task for task in self._begun if task is not but]
        checks = (task.session.run.check_secs for task in others if task.session is not None)
        shortfall = max(map(self.costs.checks.shortfall, checks), default=0.0)
        return self._side_by_side([task.control.reserve_secs for task in others]) + shortfall

    def _needs_check(self, task: Task) -> bool:
        """Return whether `task` is checked in full after its first block, because a time budget
        must be divided and no full check of this run has shown yet how long one takes."""
        session = task.session
        return (
            session is not None
            and session.run.check_secs > 0.0
            and self._has_limit
            and len(self.tasks) > 1
            and not self.costs.checks.measured
        )

    def _is_race_worth(self, task: Task, total_secs: float) -> bool:
        """Return whether a final race promises more than `WORTH_PER_SEC` of the total per second.
        The first choice of a task that waits for a share of the budget promises more."""
        if task.session is None or task.trials < 2 or (self._has_limit and self._waiting):
            return False
        cost_secs = self.costs.races.expected(task.session.run.race_secs)
        worth = WORTH_PER_SEC * total_secs * cost_secs / self._machines
        return RACE_GAIN * _weighted_secs(task) >= worth

    def _total_secs(self) -> float:
        return sum(map(_weighted_secs, self.tasks))

    # -- turns

    def _begin_turn(self, task: Task) -> None:
        first = task.state == WAITING
        most = self._first_block() if first else MAX_BATCH
        self._work(task, partial(self._turn, task, most, first))

    def _turn(self, task: Task, most: int, first: bool) -> None:
        """Measure one batch of `task`, and end the task if its search has ended, or if too little
        is left to gain."""
        self._guarded(task, lambda: task.step(self.open_session, most))
        if most > 1 and first and task.history.costs and task.measures:
            self.costs.blocks.append(task.control.used_secs)
        self._finish_ending()
        if task.search_ended:
            self._end(task, None)
            return
        if first and self._needs_check(task):
            self._guarded(task, task.check_fastest)
            self._learn_end(task)
        if task.open and not self._has_limit:
            worth = WORTH_PER_SEC * self._total_secs()
            task.quiet_batches = 0 if task.gain >= worth else task.quiet_batches + 1
            if task.quiet_batches >= QUIET_BATCHES:
                self._end(task, NOTHING_LEFT)
                return
        self._report(task)

    def _end(self, task: Task, reason: str | None) -> None:
        """Confirm the best of `task`. It is raced before if that is worth its time, or if no other
        task needs the time that is left."""
        others_secs = self._reserved_secs(but=task)
        race = task.control.races
        if not race and task.session is not None and self._has_limit and self._open == [task]:
            own_secs = self.costs.races.expected(task.session.run.race_secs)
            left_secs = self.control.left_secs - others_secs - task.control.reserve_secs
            race = left_secs > own_secs
        begun: list[bool] = []
        self._guarded(task, lambda: begun.append(task.begin_finish(reason, race=race)))
        self._finish_ending()
        self._ending = task
        if not any(begun):
            self._finish_ending()

    def _finish_ending(self) -> None:
        """Wait for the full check that runs, if there is one."""
        task, self._ending = self._ending, None
        if task is None:
            return
        if task.report is None and task.error is None:
            self._guarded(task, task.finish)
        self._learn_end(task)
        self._report(task)

    def _learn_end(self, task: Task) -> None:
        """Learn from a full check of a task."""
        end, task.end = task.end, None
        if end is not None and task.best_secs is not None:
            self.costs.checks.add(end.check_secs, end.predicted_check_secs)
            if end.race_secs:
                self.costs.races.add(end.race_secs, end.predicted_race_secs)

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
        left = min(self._side_by_side(known), max(self.control.left_secs, 0.0))
        self._eta_secs = left if known else None
        self.on_event(ManyEvent(task.status(), None, self._eta_secs))

    def _all_ended(self) -> str:
        failed = sum(task.best_secs is None for task in self.tasks)
        return "every task has ended" + (f"; {failed} without a best" if failed else "")


def _weighted_secs(task: Task) -> float:
    return task.spec.weight * (task.best_secs or 0.0)
