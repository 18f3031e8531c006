"""How many jobs a worker has open at once: on its own machine, and on its fleet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.service import timeouts

MOST_ON_A_FLEET = 16
"""All of them are searched for by one process: more would wait for its core instead."""


@dataclass(slots=True)
class JobSlots:
    """The open jobs of one kind, by id, and whose they are. `count` says how many there may be,
    beside those of owners who have no other (`queue.choose`)."""

    count: Callable[[], int]
    threads: dict[str, threading.Thread] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    oldest: str = ""

    def open_owners(self) -> list[str]:
        """The owner of each open job; jobs that are over are forgotten."""
        self.threads = {name: t for name, t in self.threads.items() if t.is_alive()}
        self.owners = {name: self.owners.get(name, "") for name in self.threads}
        return list(self.owners.values())


@dataclass(slots=True)
class FleetSize:
    """As many jobs as the fleet at `address` has machines: while one searches, races its fastest
    or has its best checked, which one machine does, the others measure for the rest."""

    address: str
    at_least: int
    _size: int = 0
    _looked: float = float("-inf")

    def __call__(self) -> int:
        if self.address and time.monotonic() - self._looked > timeouts.FLEET_SIZE_CACHE_SECS:
            self._look()
            self._looked = time.monotonic()
        return max(self.at_least, min(self._size, MOST_ON_A_FLEET))

    def _look(self) -> None:
        """A fleet that does not answer is as large as it was."""
        # Start-up: jobs that measure on this machine load nothing of a fleet.
        from tilewright.tuner.measure.fleet.machines import fleet_status
        from tilewright.tuner.measure.protocol import MeasurerError

        try:
            self._size = len(fleet_status(self.address, timeouts.FLEET_STATUS_SECS))
        except (MeasurerError, ModuleNotFoundError):
            return
