"""The control of a run from another thread: time limit, abort, and reports of its activity and
waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, inf, log10
from typing import Protocol, runtime_checkable

from tilewright.schedules.errors import TilewrightError

from .. import timeouts


class MeasurementAborted(TilewrightError):  # noqa: N818  # no error, but requested
    """A measurement ended because `Control.abort` was called, not because of the candidate."""


class OutOfTime(MeasurementAborted):
    """The seconds of a run are over. `would_do_secs` is a budget that should suffice."""

    code = "out_of_time"
    title = "Time budget exhausted"
    advice = "Allow more seconds, or run it again: what was measured is stored and counts."

    def __init__(self, message: str, would_do_secs: float | None = None) -> None:
        super().__init__(message)
        self.would_do_secs = would_do_secs


@dataclass(frozen=True, slots=True)
class Activity:
    """The current activity of a run: `phase` is one of `PHASES`, `text` describes it for users.
    `done` of `total` parts are finished, 0 of 0 if nothing is counted; `predicted_secs` is the
    predicted time of the whole activity, None if unknown."""

    phase: str
    text: str
    done: int = 0
    total: int = 0
    predicted_secs: float | None = None

    @property
    def left_secs(self) -> float | None:
        """Predicted time of the remaining parts."""
        if self.predicted_secs is None:
            return None
        return self.predicted_secs * (1.0 - self.done / self.total if self.total else 1.0)

    def __str__(self) -> str:
        counted = f" ({self.done} of {self.total} done)" if self.total else ""
        return f"{self.text}{counted}"


PHASES = (
    "starting", "reference", "proposing", "compiling", "measuring", "race", "full check",
    "publishing",
)  # fmt: skip
"""The phases in the order of a run; the middle ones repeat."""

STARTING = Activity("starting", "starting")


class Control:
    """Controls one run.

    `on_wait` is called with the reason of a wait, and with "" when the run continues; `on_activity`
    with every new activity. `is_wanted` says whether another run wants the machine, and `turn` lets
    that run have it and returns when it is this run's turn again; both are called between two
    candidates and two cases of a check. Time spent in `turn` does not count: `clock` omits it.
    `now` returns monotonic seconds, and `started` is the start of the run on that clock, such as
    the start of the command. Thread-safe.
    """

    def __init__(
        self,
        on_wait: Callable[[str], None] = lambda text: None,
        *,
        is_wanted: Callable[[], bool] = lambda: False,
        turn: Callable[[], None] = lambda: None,
        on_activity: Callable[[Activity], None] = lambda activity: None,
        now: Callable[[], float] | None = None,
        started: float | None = None,
    ) -> None:
        self.waiting = on_wait
        self.is_wanted = is_wanted
        self.now = now or time.monotonic
        self.started = self.now() if started is None else started
        self.activity = STARTING
        self.allowed_secs = inf
        self.reserve_secs = 0.0
        self._on_activity = on_activity
        self._turn = turn
        self._paused_secs = 0.0
        self._locked_out_secs = 0.0
        self._aborted = threading.Event()
        self._lock = threading.Lock()
        self._kills: list[Callable[[], None]] = []

    # -- other runs

    def pause(self) -> None:
        """Let other runs use the machine, if they want it."""
        with self.paused():
            self._turn()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time of other runs: `clock` stops during the block."""
        start = self.now()
        try:
            yield
        finally:
            self._paused_secs += self.now() - start

    @contextmanager
    def locked_out(self) -> Iterator[None]:
        """Time in which other programs hold the machine's lock, which counts as this run's."""
        start = self.now()
        try:
            yield
        finally:
            self._locked_out_secs += self.now() - start

    @property
    def waited_secs(self) -> float:
        """Seconds of `paused` and of `locked_out` so far."""
        return self._paused_secs + self._locked_out_secs

    # -- its clock

    def clock(self) -> float:
        """Seconds, monotonic, without those spent in `pause`."""
        return self.now() - self._paused_secs

    @property
    def used_secs(self) -> float:
        """Seconds since the run began, without those of other runs."""
        return self.clock() - self.started

    @property
    def wall_secs(self) -> float:
        """Wall time since the run began, in seconds."""
        return self.now() - self.started

    def allow(self, seconds: float | None) -> None:
        """Limit the run to `seconds` from `started` on, without those of other runs; None: no
        limit."""
        self.allowed_secs = inf if seconds is None else seconds

    @property
    def left_secs(self) -> float:
        """Seconds left of the limit; negative once it has passed."""
        return self.allowed_secs - self.used_secs

    @property
    def killed_in_secs(self) -> float:
        """Seconds until `check` raises OutOfTime: `timeouts.RUN_GRACE_SECS` after the limit."""
        return self.left_secs + timeouts.RUN_GRACE_SECS

    def may_begin(self) -> bool:
        """Whether there is time for another candidate before the reserve for the end of the run."""
        return self.left_secs > self.reserve_secs

    def doing(self, activity: Activity) -> None:
        """Report the run's new activity."""
        self.activity = activity
        self._on_activity(activity)

    def used_up(self) -> OutOfTime:
        """The error that ends measuring when the budget is used up."""
        return OutOfTime(f"the time budget of {self.allowed_secs:g} s is used up")

    def out_of_time(self) -> OutOfTime:
        """The error that ends the run now, with a budget that should suffice."""
        activity = self.activity
        used_secs = self.used_secs
        would_do = 3 * max(self.allowed_secs, used_secs)
        if activity.done:  # at this pace, from the start of the run: never too little
            would_do = min(would_do, 1.5 * used_secs * activity.total / activity.done)
        would_do = rounded_up(max(would_do, 1.5 * self.allowed_secs))
        return OutOfTime(
            f"stopped: {self.allowed_secs:g} s ended during {activity}; `--seconds {would_do:g}`"
            " should do",
            would_do,
        )

    # -- its end

    def abort(self) -> None:
        """Abort the run: native work is killed, and the run raises MeasurementAborted.

        Call it again until the run is over: a process that starts at this moment may be missed.
        """
        self._aborted.set()
        with self._lock:
            kills = list(self._kills)
        for kill in kills:
            kill()

    @property
    def aborted(self) -> bool:
        return self._aborted.is_set()

    def check(self) -> None:
        """MeasurementAborted after `abort`, as results of killed processes are wrong. OutOfTime if
        the time limit has passed."""
        if self._aborted.is_set():
            raise MeasurementAborted("stopped on request")
        if self.killed_in_secs <= 0.0:
            raise self.out_of_time()

    def on_abort(self, kill: Callable[[], None]) -> None:
        """Register `kill` for `abort`, which calls it from its own thread; it must not wait."""
        with self._lock:
            self._kills.append(kill)

    @contextmanager
    def killing(self, kill: Callable[[], None]) -> Iterator[None]:
        """`on_abort` during the block. MeasurementAborted before or after it, as results of the
        block are wrong if `kill` was called."""
        self.on_abort(kill)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._kills.remove(kill)
            self.check()


def rounded_up(secs: float) -> float:
    """`secs` rounded up to two digits, as people would type it."""
    digit = 10.0 ** (ceil(log10(max(secs, 1.0))) - 2)
    return ceil(secs / max(digit, 1.0)) * max(digit, 1.0)


@runtime_checkable
class Controllable(Protocol):
    """A measurer with processes that an abort has to end."""

    def attach(self, control: Control) -> None:
        """Obey `control` from now on; called before the measurer is entered."""
        ...
