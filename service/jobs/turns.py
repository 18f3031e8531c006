"""One machine, several jobs: each works for a batch, then the next has its turn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOOK_SECS = 0.25


class Turns:
    """Whose turn it is: the first in a row. Who passes it on goes to the row's end.

    Safe to call from any thread; names of participants are unique.
    """

    def __init__(self) -> None:
        self._row: deque[str] = deque()
        self._changed = threading.Condition()

    @contextmanager
    def among(self, name: str) -> Iterator[None]:
        """Stand in the row for as long as the block lasts."""
        with self._changed:
            self._row.append(name)
        try:
            yield
        finally:
            with self._changed:
                self._row.remove(name)
                self._changed.notify_all()

    def next(self, name: str, look: Callable[[int], None]) -> None:
        """Pass the turn on, if somebody waits for it, and wait for it to come back.

        `look` is called with how many are before `name`, some times a second while it waits; what
        it raises ends the wait.
        """
        with self._changed:
            if self._row[0] == name and len(self._row) > 1:
                self._row.rotate(-1)
                self._changed.notify_all()
        self.wait(name, look)

    def wait(self, name: str, look: Callable[[int], None]) -> None:
        """Wait for the turn of `name`."""
        while True:
            with self._changed:
                before = self._row.index(name)
                if before == 0:
                    return
                self._changed.wait(LOOK_SECS)
                before = self._row.index(name)
            if before:
                look(before)
