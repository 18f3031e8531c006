"""How whoever started a measurement reaches it from another thread, and hears what it waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, runtime_checkable

from schedules.errors import TilewrightError


class MeasurementAborted(TilewrightError):  # noqa: N818  # it is no error: somebody asked for it
    """A measurement ended because `Control.abort` was called; it says nothing of the candidate."""


class Control:
    """A line into one run. `on_wait` hears of what the run waits for, "" when it goes on.

    `is_wanted` says whether others want the machine now, and `turn` lets them have it and returns
    when it is this run's again; both are asked between two candidates. Time spent in `turn` is none
    of the run's: `clock` leaves it out. Safe to call from any thread.
    """

    def __init__(
        self,
        on_wait: Callable[[str], None] = lambda text: None,
        *,
        is_wanted: Callable[[], bool] = lambda: False,
        turn: Callable[[], None] = lambda: None,
    ) -> None:
        self.waiting = on_wait
        self.is_wanted = is_wanted
        self._turn = turn
        self._paused_secs = 0.0
        self._aborted = threading.Event()
        self._lock = threading.Lock()
        self._kills: list[Callable[[], None]] = []

    def pause(self) -> None:
        """Let others work, if they want to."""
        start = time.monotonic()
        try:
            self._turn()
        finally:
            self._paused_secs += time.monotonic() - start

    def clock(self) -> float:
        """Seconds, monotonic, without those spent in `pause`."""
        return time.monotonic() - self._paused_secs

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
        """MeasurementAborted if it was asked for: results of processes that were killed lie."""
        if self._aborted.is_set():
            raise MeasurementAborted("stopped on request")

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


@runtime_checkable
class Controllable(Protocol):
    """A measurer with processes that may have to be ended from outside."""

    def attach(self, control: Control) -> None:
        """Obey `control` from now on."""
        ...
