"""Control of a run from another thread: time limit, abort, and reports of activities and waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from math import ceil, inf, log10
from typing import Protocol, runtime_checkable

from tilewright.schedules.errors import TilewrightError

from .. import timeouts

RESERVE_MARGIN = 1.25
MAX_RESERVED_SHARE = 0.6
"""The time reserved for the end of a run is its predicted time times RESERVE_MARGIN, at most
MAX_RESERVED_SHARE of the budget."""


class MeasurementAborted(TilewrightError):  # noqa: N818  # not an error: the abort was requested
    """A measurement ended because `Control.abort` was called. The candidate is not the reason."""


class OutOfTime(MeasurementAborted):
    """The time budget of a run is used up. `would_do_secs` is a budget in seconds that should
    suffice."""

    code = "out_of_time"
    title = "Time budget exhausted"
    advice = "Allow more seconds, or run it again: stored measurements are used again."

    def __init__(self, message: str, would_do_secs: float | None = None) -> None:
        super().__init__(message)
        self.would_do_secs = would_do_secs


@dataclass(frozen=True, slots=True)
class Activity:
    """The current activity of a run."""

    phase: str
    """One of `PHASES`."""
    text: str
    """A description for users."""
    done: int = 0
    """The number of finished parts. It is 0 if the activity has no parts."""
    total: int = 0
    """The number of all parts, or 0."""
    predicted_secs: float | None = None
    """The predicted time of the whole activity, or None if it is unknown."""

    @property
    def left_secs(self) -> float | None:
        """The predicted remaining time in seconds, or None if it is unknown."""
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
"""The phases in the order of a run. All except the first and the last one may occur several
times."""

STARTING = Activity("starting", "starting")


class Control:
    """The control of one run. Thread-safe.

    `on_wait` is called with the reason when the run begins to wait, and with "" when it continues.
    `on_activity` is called with each activity that begins. `is_wanted` returns whether another run
    needs the machine. `turn` lets that run use the machine, and returns when this run may continue.
    `is_wanted` and `turn` are called between two candidates, and between two cases of a check. The
    method `clock` excludes the time spent in `turn`. `now` returns monotonic seconds. `started` is
    the time of `now` at which the run began, for example the start of the command.
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
        """Let other runs use the machine if one of them needs it."""
        with self.paused():
            self._turn()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop `clock` during the block, because other runs use the time."""
        start = self.now()
        try:
            yield
        finally:
            self._paused_secs += self.now() - start

    @contextmanager
    def locked_out(self) -> Iterator[None]:
        """Count the time of the block as a wait for the machine's lock. `clock` continues."""
        start = self.now()
        try:
            yield
        finally:
            self._locked_out_secs += self.now() - start

    def elsewhere(self) -> AbstractContextManager[None]:
        """Let other tasks of the same run continue during the block, because this one only waits
        for other machines. Blocks must not be nested."""
        return nullcontext()

    @property
    def waited_secs(self) -> float:
        """The seconds spent in `paused` and `locked_out` blocks."""
        return self._paused_secs + self._locked_out_secs

    # -- the clock of the run

    def clock(self) -> float:
        """Return monotonic seconds without the seconds spent in `paused` blocks."""
        return self.now() - self._paused_secs

    @property
    def used_secs(self) -> float:
        """Return the seconds since the run began, without the time of other runs."""
        return self.clock() - self.started

    @property
    def wall_secs(self) -> float:
        """Return the wall time in seconds since the run began."""
        return self.now() - self.started

    def allow(self, seconds: float | None) -> None:
        """Limit the run to `seconds` after `started`, without the time of other runs. None means no
        limit."""
        self.allowed_secs = inf if seconds is None else seconds

    @property
    def left_secs(self) -> float:
        """Return the seconds until the time limit. It is negative after the limit."""
        return self.allowed_secs - self.used_secs

    @property
    def killed_in_secs(self) -> float:
        """Return the seconds until `check` raises OutOfTime: `timeouts.RUN_GRACE_SECS` after the
        time limit."""
        return self.left_secs + timeouts.RUN_GRACE_SECS

    def reserve_end(self, check_secs: float, race_secs: float | None = None) -> None:
        """Reserve time for the end of the run: a full check, and a final race unless `race_secs` is
        None, are predicted to take these seconds."""
        most_secs = MAX_RESERVED_SHARE * self.allowed_secs
        self.reserve_secs = min(RESERVE_MARGIN * (check_secs + (race_secs or 0.0)), most_secs)

    def may_begin(self) -> bool:
        """Return whether there is time for another candidate before the time that is reserved for
        the end of the run."""
        return self.left_secs > self.reserve_secs

    def doing(self, activity: Activity) -> None:
        """Report that `activity` begins."""
        self.activity = activity
        self._on_activity(activity)

    def used_up(self) -> OutOfTime:
        """Return the error that ends measuring because the budget is used up."""
        return OutOfTime(f"the time budget of {self.allowed_secs:g} s is used up")

    def out_of_time(self) -> OutOfTime:
        """Return the error that ends the run now. It states a budget that should suffice."""
        activity = self.activity
        used_secs = self.used_secs
        would_do = 3 * max(self.allowed_secs, used_secs)
        if activity.done:  # at the average pace, which includes the start-up, so it suffices
            would_do = min(would_do, 1.5 * used_secs * activity.total / activity.done)
        would_do = rounded_up(max(would_do, 1.5 * self.allowed_secs))
        return OutOfTime(
            f"stopped: {self.allowed_secs:g} s ended during {activity}; `--seconds {would_do:g}`"
            " should suffice",
            would_do,
        )

    # -- the end of the run

    def abort(self) -> None:
        """Abort the run: kill native code, and make the run raise MeasurementAborted.

        The caller must repeat the call until the run has ended, because a process that is just
        starting may not yet be registered.
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
        """Raise MeasurementAborted if `abort` was called. Raise OutOfTime if the time limit and its
        grace have passed."""
        if self._aborted.is_set():
            raise MeasurementAborted("stopped on request")
        if self.killed_in_secs <= 0.0:
            raise self.out_of_time()

    def on_abort(self, kill: Callable[[], None]) -> None:
        """Register `kill`. `abort` calls it in the thread of its caller, so it must not wait."""
        with self._lock:
            self._kills.append(kill)

    @contextmanager
    def killing(self, kill: Callable[[], None]) -> Iterator[None]:
        """Register `kill` for `abort` during the block.

        If the run was aborted, raise MeasurementAborted before or after the block. Results of a
        block are wrong if `kill` was called during it.
        """
        self.on_abort(kill)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._kills.remove(kill)
            self.check()


def rounded_up(secs: float) -> float:
    """Return `secs` rounded up to two digits, as a user would type the number."""
    digit = 10.0 ** (ceil(log10(max(secs, 1.0))) - 2)
    return ceil(secs / max(digit, 1.0)) * max(digit, 1.0)


@runtime_checkable
class Controllable(Protocol):
    """A measurer with processes that an abort must end."""

    def attach(self, control: Control) -> None:
        """Obey `control`. This is called before the measurer is entered."""
        ...
