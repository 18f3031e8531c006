"""The control of one task of many: a clock of its own, and the limits of the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

from ..process.control import MAX_RESERVED_SHARE, Activity, Control, OutOfTime
from .costs import TaskCosts
from .threads import TaskThreads


@dataclass(slots=True)
class Stopwatch:
    """Seconds that pass while it runs, on the clock `now`."""

    now: Callable[[], float]
    _secs: float = 0.0
    _since: float | None = None

    def __call__(self) -> float:
        return self._secs + (0.0 if self._since is None else self.now() - self._since)

    @contextmanager
    def running(self) -> Iterator[None]:
        self._since = self.now()
        try:
            yield
        finally:
            self._secs, self._since = self(), None


class TaskControl(Control):
    """Controls the run of one task. Its clock advances only while `stopwatch` runs.

    An abort of `whole` aborts the task. `others_reserve_secs` is the time that other tasks reserve
    for their ends. The time reserved for the end of this task is expected from `costs`, and
    includes the final race only if `races`. While the task waits for other machines, others of
    `threads` may run.
    """

    def __init__(self, whole: Control, name: str, costs: TaskCosts, threads: TaskThreads) -> None:
        self.stopwatch = Stopwatch(whole.now)
        self.others_reserve_secs = 0.0
        self.races = False
        self._costs = costs
        self._threads = threads
        self._whole = whole

        def tell(activity: Activity) -> None:
            whole.doing(replace(activity, text=f"{name}: {activity.text}"))

        super().__init__(
            whole.waiting,
            is_wanted=whole.is_wanted,
            turn=whole.pause,
            on_activity=tell,
            now=self.stopwatch,
            started=0.0,
        )
        whole.on_abort(self.abort)

    def elsewhere(self) -> AbstractContextManager[None]:
        """Let other tasks continue (see `Control.elsewhere`)."""
        return self._threads.elsewhere()

    @property
    def shares(self) -> int:
        """The number of tasks that are at work now, with this one."""
        return max(len(self._threads.at_work), 1)

    @property
    def left_secs(self) -> float:
        """Seconds of the whole until its time limit, without the reserves of other tasks."""
        return self._whole.left_secs - self.others_reserve_secs

    def reserve_end(self, check_secs: float, race_secs: float | None = None) -> None:
        """Reserve time for the end of the task (see `Control.reserve_end`)."""
        expected_secs = self._costs.checks.expected(check_secs)
        if self.races and race_secs is not None:
            expected_secs += self._costs.races.expected(race_secs)
        self.reserve_secs = min(expected_secs, MAX_RESERVED_SHARE * self.allowed_secs)

    @property
    def killed_in_secs(self) -> float:
        """Seconds until the whole is killed."""
        return self._whole.killed_in_secs

    def out_of_time(self) -> OutOfTime:
        """Return the error that ends the whole now."""
        return self._whole.out_of_time()

    def check(self) -> None:
        """Raise MeasurementAborted or OutOfTime if the whole or the task has ended."""
        self._whole.check()
        super().check()
