"""One machine, several jobs: each works for a while, then the next has its turn."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK_SECS = 0.25
TURN_SECS = 2.0
"""A turn ends with the candidate at which it has lasted this long, if others wait."""


class Turns:
    """Whose turn it is: the first in a row. Who passes it on goes to the row's end.

    Safe to call from any thread; names of participants are unique.
    """

    def __init__(
        self, turn_secs: float = TURN_SECS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._turn_secs = turn_secs
        self._clock = clock
        self._row: deque[str] = deque()
        self._first: str | None = None
        self._began = clock()
        self._changed = threading.Condition()

    @contextmanager
    def among(self, name: str) -> Iterator[None]:
        """Stand in the row for as long as the block lasts."""
        with self._changed:
            self._row.append(name)
            self._settle()
        try:
            yield
        finally:
            with self._changed:
                self._row.remove(name)
                self._settle()

    def is_over(self, name: str) -> bool:
        """Whether it is the turn of `name`, has lasted long enough, and others wait for theirs."""
        with self._changed:
            mine = len(self._row) > 1 and self._row[0] == name
            return mine and self._clock() - self._began >= self._turn_secs

    def next(self, name: str, look: Callable[[int], None]) -> None:
        """Pass the turn on if it is over, and wait for it to come back: see `wait`."""
        if self.is_over(name):
            with self._changed:
                self._row.rotate(-1)
                self._settle()
        self.wait(name, look)

    def wait(self, name: str, look: Callable[[int], None]) -> None:
        """Wait for the turn of `name`. `look` is called with how many are before it, some times a
        second; what it raises ends the wait."""
        while True:
            with self._changed:
                if self._row[0] != name:
                    self._changed.wait(LOOK_SECS)
                before = self._row.index(name)
            if not before:
                return
            look(before)

    def aside(self, name: str, others_first: Callable[[], bool], look: Callable[[], None]) -> None:
        """While `others_first`, leave the row to the rest; then stand at its end. `look` is called
        some times a second; what it raises ends the wait."""
        if not others_first():
            return
        with self._changed:
            self._row.remove(name)
            self._settle()
        try:
            while others_first():
                look()
                time.sleep(LOOK_SECS)
        finally:
            with self._changed:
                self._row.append(name)
                self._settle()

    def _settle(self) -> None:
        """After a change of the row: a turn begins where another is first."""
        first = self._row[0] if self._row else None
        if first != self._first:
            self._first, self._began = first, self._clock()
        self._changed.notify_all()
