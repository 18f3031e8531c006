"""How whoever started a measurement reaches it from another thread, how long it may take, and what
it says of itself: what it is doing, and what it waits for."""

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


class MeasurementAborted(TilewrightError):  # noqa: N818  # it is no error: somebody asked for it
    """A measurement ended because `Control.abort` was called; it says nothing of the candidate."""


class OutOfTime(MeasurementAborted):
    """The seconds of a run are over. `would_do_secs` is a number of seconds that should do."""

    code = "out_of_time"
    title = "Not done in its seconds"
    advice = "Allow more seconds, or run it again: what was measured is stored and counts."

    def __init__(self, message: str, would_do_secs: float | None = None) -> None:
        super().__init__(message)
        self.would_do_secs = would_do_secs


@dataclass(frozen=True, slots=True)
class Activity:
    """What a run is doing: `phase` is one word of a fixed set (`PHASES`), `text` the same for
    people. `done` of `total` parts are through, 0 of 0 where nothing is counted; `predicted_secs`
    is how long all of it should take, None where nobody knows."""

    phase: str
    text: str
    done: int = 0
    total: int = 0
    predicted_secs: float | None = None

    @property
    def left_secs(self) -> float | None:
        """How long the rest of it should take."""
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
"""In the order in which a run comes to them; the middle ones come again and again."""

STARTING = Activity("starting", "starting")


class Control:
    """A line into one run. `on_wait` hears of what the run waits for, "" when it goes on;
    `on_activity` of what it begins to do.

    `is_wanted` says whether others want the machine now, and `turn` lets them have it and returns
    when it is this run's again; both are asked between two candidates and two cases of a check.
    Time spent in `turn` is none of the run's: `clock` leaves it out. `now` gives seconds,
    monotonic, and `started` is when the run began by it: the start of the command, say. Safe to
    call from any thread.
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

    # -- others

    def pause(self) -> None:
        """Let others work, if they want to."""
        with self.paused():
            self._turn()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time that others use: `clock` stands still for as long as the block lasts."""
        start = self.now()
        try:
            yield
        finally:
            self._paused_secs += self.now() - start

    @contextmanager
    def locked_out(self) -> Iterator[None]:
        """Time in which processes that are none of ours have the machine: it counts."""
        start = self.now()
        try:
            yield
        finally:
            self._locked_out_secs += self.now() - start

    @property
    def waited_secs(self) -> float:
        """Seconds in which others worked, of the same service or not, so far."""
        return self._paused_secs + self._locked_out_secs

    # -- its clock

    def clock(self) -> float:
        """Seconds, monotonic, without those spent in `pause`."""
        return self.now() - self._paused_secs

    @property
    def used_secs(self) -> float:
        """Seconds since the run began, without those of others."""
        return self.clock() - self.started

    @property
    def wall_secs(self) -> float:
        """Seconds since the run began, by a clock on the wall."""
        return self.now() - self.started

    def allow(self, seconds: float | None) -> None:
        """Let the run take `seconds` from `started` on, without those of others; None for ever."""
        self.allowed_secs = inf if seconds is None else seconds

    @property
    def left_secs(self) -> float:
        """What is left of the seconds of this run; negative where they are over."""
        return self.allowed_secs - self.used_secs

    @property
    def killed_in_secs(self) -> float:
        """When `check` will find that time is up: `timeouts.RUN_GRACE_SECS` after the end."""
        return self.left_secs + timeouts.RUN_GRACE_SECS

    def may_begin(self) -> bool:
        """Whether there is time for another candidate: what ends a run is kept in reserve."""
        return self.left_secs > self.reserve_secs

    def doing(self, activity: Activity) -> None:
        """Tell what the run does from here on."""
        self.activity = activity
        self._on_activity(activity)

    def used_up(self) -> OutOfTime:
        """Why nothing more is measured."""
        return OutOfTime(f"the time budget of {self.allowed_secs:g} s is used up")

    def out_of_time(self) -> OutOfTime:
        """Why the run ends now, in words, and how many seconds would have done."""
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
        """End what is under way: native work is killed, and the run raises MeasurementAborted.

        Call it again until the run is over: a process started at this very moment may be missed.
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
        """MeasurementAborted if it was asked for: results of processes that were killed lie.
        OutOfTime if the run has taken longer than it may."""
        if self._aborted.is_set():
            raise MeasurementAborted("stopped on request")
        if self.killed_in_secs <= 0.0:
            raise self.out_of_time()

    def on_abort(self, kill: Callable[[], None]) -> None:
        """Have `kill` called by `abort`, from its thread; it must not wait."""
        with self._lock:
            self._kills.append(kill)

    @contextmanager
    def killing(self, kill: Callable[[], None]) -> Iterator[None]:
        """`on_abort` for as long as the block lasts, whose results are lies if it was called:
        MeasurementAborted before and after."""
        self.on_abort(kill)
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._kills.remove(kill)
            self.check()


def rounded_up(secs: float) -> float:
    """`secs` rounded up to two digits: what somebody would type."""
    digit = 10.0 ** (ceil(log10(max(secs, 1.0))) - 2)
    return ceil(secs / max(digit, 1.0)) * max(digit, 1.0)


@runtime_checkable
class Controllable(Protocol):
    """A measurer with processes that may have to be ended from outside."""

    def attach(self, control: Control) -> None:
        """Obey `control` from now on; called before the measurer is entered."""
        ...
