"""Time slices: jobs take turns on one machine.

Owners share the machine by the seconds that they have used, whatever the budgets of their jobs. The
next slice goes to the owner with the least use, round-robin among its jobs. If a call cannot be
interrupted at the end of a slice, its whole time counts as use. An owner that arrives or returns
starts with the least use of the present owners: unused time is no credit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewright.service import timeouts


class TimeSlices:
    """Decides which participant has the machine. Participants (jobs) have unique names.
    Thread-safe."""

    def __init__(
        self,
        turn_secs: float = timeouts.TIME_SLICE_SECS,
        clock: Callable[[], float] = time.monotonic,
        look_secs: float = timeouts.JOB_POLL_SECS,
    ) -> None:
        self._turn_secs, self._look_secs = turn_secs, look_secs
        self._clock = clock
        self._owners: dict[str, str] = {}
        """Participants in the order of their arrival or of their last slice."""
        self._used_secs: dict[str, float] = {}
        self._first: str | None = None
        self._began = clock()
        self._changed = threading.Condition()

    @contextmanager
    def participate(self, name: str, owner: str = "") -> Iterator[None]:
        """Let the job `name` of `owner` take part in the time slices during the block."""
        with self._changed:
            self._enter(name, owner)
        try:
            yield
        finally:
            with self._changed:
                self._leave(name)

    def slice_is_over(self, name: str) -> bool:
        """Return whether `name` has used the machine for a full slice, and another participant is
        next."""
        with self._changed:
            mine = self._first == name and self._clock() - self._began >= self._turn_secs
            return mine and self._next() != name

    def take_turn(self, name: str, look: Callable[[int], None]) -> None:
        """End the slice if it is over, and wait for the next slice of `name`. While waiting, `look`
        is called with the number of participants before `name`; an exception in it ends the wait.
        """
        if self.slice_is_over(name):
            with self._changed:
                self._pass_on()
        self.wait(name, look)

    def wait(self, name: str, look: Callable[[int], None]) -> None:
        """Wait for a slice of `name`. `look` is called several times a second with the number of
        participants before it; an exception in `look` ends the wait."""
        while True:
            with self._changed:
                if self._first != name:
                    self._changed.wait(self._look_secs)
                before = self._before(name)
            if not before:
                return
            look(before)

    def step_aside(
        self, name: str, others_first: Callable[[], bool], look: Callable[[], None]
    ) -> None:
        """Leave while `others_first` returns True, then enter again as the last of its owner.
        `look` is called several times a second; an exception in `look` ends the wait."""
        if not others_first():
            return
        with self._changed:
            owner = self._owners[name]
            self._leave(name)
        try:
            while others_first():
                look()
                time.sleep(self._look_secs)
        finally:
            with self._changed:
                self._enter(name, owner)

    # -- under the lock

    def _enter(self, name: str, owner: str) -> None:
        present = set(self._owners.values())
        if owner not in present:
            level = min((self._used(other) for other in present), default=0.0)
            self._used_secs[owner] = max(self._used_secs.get(owner, 0.0), level)
        self._owners[name] = owner
        if self._first is None:
            self._begin(name)

    def _leave(self, name: str) -> None:
        if self._first == name:
            self._charge()
            self._first = None
        del self._owners[name]
        if not self._owners:
            self._used_secs.clear()
        elif self._first is None:
            self._begin(self._next())

    def _pass_on(self) -> None:
        chosen = self._next()
        self._charge()
        assert self._first is not None
        self._owners[self._first] = self._owners.pop(self._first)  # move to the end
        self._begin(chosen)

    def _begin(self, name: str) -> None:
        self._first, self._began = name, self._clock()
        self._changed.notify_all()

    def _charge(self) -> None:
        assert self._first is not None
        owner = self._owners[self._first]
        self._used_secs[owner] = self._used(owner)

    def _used(self, owner: str) -> float:
        """Return the seconds that an owner has used, including the current slice."""
        under_way = self._first is not None and self._owners[self._first] == owner
        return self._used_secs[owner] + (self._clock() - self._began if under_way else 0.0)

    def _line(self) -> list[str]:
        names = [name for name in self._owners if name != self._first]
        names += [] if self._first is None else [self._first]  # last among equals
        return sorted(names, key=lambda name: self._used(self._owners[name]))

    def _next(self) -> str:
        return self._line()[0]

    def _before(self, name: str) -> int:
        """Return how many participants have the machine before `name`, including the current
        one."""
        if self._first == name:
            return 0
        line = [other for other in self._line() if other != self._first]
        return 1 + line.index(name)
