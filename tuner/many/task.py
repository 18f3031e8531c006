"""One task of many: a session that is opened at its first turn, and advances a batch per turn."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import inf

from tilewright.schedules.errors import TilewrightError

from ..process.control import MeasurementAborted, OutOfTime
from ..search.base import PromisesTime
from ..session.report import TuneReport
from ..session.run import TuningSession
from ..session.stopping_rule import MAX_BATCH
from .entries import TaskSpec
from .gain import BatchHistory, expected_gain, left_to_gain
from .report import BUG, DONE, FAILED, TUNING, WAITING, TaskError, TaskReport, TaskStatus
from .task_control import TaskControl

OpenSession = Callable[["Task", ExitStack], TuningSession]
"""Opens the session of a task; what must be closed at its end is entered into the stack."""


@dataclass(frozen=True, slots=True)
class EndCost:
    """Seconds of the full check and the final race of a task, measured and predicted."""

    check_secs: float
    predicted_check_secs: float
    race_secs: float
    predicted_race_secs: float


@dataclass
class Task:
    """A task and its results so far. `quiet_batches` counts its latest batches in a row after which
    too little was left to gain. `end` is what its end cost, if a full check was part of it."""

    number: int
    spec: TaskSpec
    control: TaskControl
    of_trials: int
    history: BatchHistory = field(default_factory=BatchHistory)
    quiet_batches: int = 0
    session: TuningSession | None = None
    report: TuneReport | None = None
    reason: str = ""
    error: TaskError | None = None
    end: EndCost | None = None
    state: str = WAITING
    _is_finishing: bool = False
    _given_reason: str | None = None
    _end_began: float = 0.0
    _checks_before: int = 0
    _trials: int = 0
    _closing: ExitStack = field(default_factory=ExitStack)

    # -- turns

    def step(self, open_session: OpenSession, most: int = MAX_BATCH) -> None:
        """Measure one batch of at most `most` trials; the first turn opens the session. The seconds
        of a batch are divided among the tasks that were at work."""
        with self.control.stopwatch.running():
            before = self.control.used_secs
            if self.session is None:
                self.state = TUNING
                self.session = open_session(self, self._closing)
            self.session.step(most)
            secs = (self.control.used_secs - before) / self.control.shares
            self.history.add(secs, self.session.run.best_secs)

    def check_fastest(self) -> None:
        """Check the fastest candidate so far in full."""
        if self.session is None:
            return
        run, before, checks = self.session.run, self.control.used_secs, self._checks
        with self.control.stopwatch.running():
            self.session.check_fastest()
        if self._checks > checks:
            self.end = EndCost(self.control.used_secs - before, run.check_secs, 0.0, 0.0)

    def begin_finish(self, reason: str | None = None, *, race: bool = False) -> bool:
        """Begin to confirm the best, after the final race if `race`, and to end the task for its
        own reason or `reason`. Return whether a full check runs, during which other tasks may have
        turns."""
        self._given_reason, self._is_finishing = reason, True
        self._end_began, self._checks_before = self.control.used_secs, self._checks
        if self.session is None:
            return False
        with self.control.stopwatch.running():
            return self.session.begin_finish(race=race)

    def finish(self) -> None:
        """Wait until the best is confirmed, and end the task."""
        if self.session is None:
            self.end_unbegun(self._given_reason or "")
            return
        run = self.session.run
        with self.control.stopwatch.running():
            self.report = self.session.finish(self._given_reason)
        if len(run.confirmed) > self._checks_before:
            check_secs = self.control.used_secs - self._end_began - run.raced_secs
            self.end = EndCost(check_secs, run.check_secs, run.raced_secs, run.race_secs)
        self.reason = self.report.stopped_because
        if self.report.best is None and self.error is None:
            late = self.report.out_of_time is not None
            self.error = TaskError(OutOfTime.code if late else "no_best", self.reason)
        self.state = FAILED if self.report.best is None else DONE
        self.close()

    def end_unbegun(self, reason: str) -> None:
        """End a task that had no turn."""
        self.reason = reason
        self.error = self.error or TaskError("not_begun", f"it was not begun: {reason}")
        self.state = FAILED

    def reserve_end(self) -> None:
        """Reserve time for the end of this task, from what the ends of other tasks took."""
        self.control.reserve_secs = 0.0
        if self.session is not None and self.best_secs is not None:
            self.control.reserve_end(self.session.run.check_secs, self.session.run.race_secs)

    def fail(self, error: Exception) -> None:
        """Report the error, and confirm the best that was measured before, if possible."""
        self.error = _described(error)
        self.reason = self.error.message
        if self.best_secs is not None and not self._is_finishing:
            try:
                self.begin_finish(f"stopped: {self.error.message}")
                self.finish()
            except Exception as second:  # noqa: BLE001  # the first error is reported
                self.error = TaskError(self.error.code, f"{self.error.message}; then {second}")
        if self.report is None:
            self.state = FAILED
        self.close()

    def close(self) -> None:
        """End the processes of this task, and release its memory."""
        self.control.reserve_secs = 0.0
        self._trials = self.trials
        self.session = None
        self._closing.close()

    # -- what is left

    @property
    def open(self) -> bool:
        """Whether the task may have another turn."""
        return self.state in (WAITING, TUNING) and not self._is_finishing

    @property
    def _checks(self) -> int:
        """The number of full checks in this run."""
        return 0 if self.session is None else len(self.session.run.confirmed)

    @property
    def search_ended(self) -> bool:
        """Whether the search of this open task has ended, so that it only needs to be finished."""
        return self.session is not None and self.session.ended

    @property
    def best_secs(self) -> float | None:
        """The best time per call so far, or None."""
        if self.report is not None:
            return None if self.report.best is None else self.report.best.run_secs
        return None if self.session is None else self.session.run.best_secs

    @property
    def left_secs(self) -> float | None:
        """Seconds per call that are left to gain, or None before the first success."""
        session, best = self.session, self.best_secs
        if session is None or best is None:
            return None
        strategy = session.run.strategy
        promised = strategy.promised_secs if isinstance(strategy, PromisesTime) else None
        return left_to_gain(best, session.run.bound.goal_secs, promised)

    @property
    def gain(self) -> float:
        """The expected gain of the next batch, in weighted seconds per second of tuning."""
        left = self.left_secs
        return inf if left is None else expected_gain(self.history, self.spec.weight, left)

    # -- reports

    @property
    def trials(self) -> int:
        if self.report is not None:
            return int(self.report.trials["total"])
        return self._trials if self.session is None else len(self.session.run.trials)

    @property
    def measures(self) -> bool:
        """Whether this run measured a trial of this task, rather than only reusing records."""
        return self.session is not None and self.session.run.measured_now

    @property
    def eta_secs(self) -> float | None:
        """The time of the remaining trials and of the end at most, or None before the first
        batch."""
        if self.session is None or not self.trials:
            return None
        per_trial = self.control.used_secs / self.trials
        return per_trial * (self.of_trials - self.trials) + self.control.reserve_secs

    def status(self) -> TaskStatus:
        best, left = self.best_secs, self.left_secs
        fraction = None
        if self.report is not None and self.report.best is not None:
            fraction = self.report.best.fraction_of_bound
        elif self.session is not None and best is not None:
            fraction = self.session.run.bound.fraction(best)
        return TaskStatus(
            number=self.number,
            name=self.spec.name,
            workload_key=self.spec.workload.key,
            weight=self.spec.weight,
            state=self.state,
            trials=self.trials,
            of_trials=self.of_trials,
            best_run_secs=best,
            weighted_secs=None if best is None else self.spec.weight * best,
            fraction_of_bound=fraction,
            left_to_gain=None if best is None or left is None else left / best,
            eta_secs=self.eta_secs if self.open else None,
            reason=self.reason,
        )

    def task_report(self) -> TaskReport:
        return TaskReport(
            name=self.spec.name,
            workload_key=self.spec.workload.key,
            weight=self.spec.weight,
            entries=self.spec.entries,
            trials=self.trials,
            report=self.report,
            stopped_because=self.reason,
            error=self.error,
        )


def _described(error: Exception) -> TaskError:
    if isinstance(error, MeasurementAborted) and not isinstance(error, OutOfTime):
        return TaskError("stopped", str(error))
    if isinstance(error, TilewrightError):
        return TaskError(error.code, str(error))
    if isinstance(error, MemoryError):
        return TaskError("out_of_memory", "there was not enough memory")
    return TaskError(BUG, f"{type(error).__name__}: {error}")
