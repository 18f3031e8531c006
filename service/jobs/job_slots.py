"""Limits on the jobs that a worker runs concurrently, on its machine and on its fleet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.service import timeouts

MOST_ON_A_FLEET = 16
"""One process runs the searches of all these jobs; more jobs would only wait for its core."""


@dataclass(slots=True)
class JobSlots:
    """Open jobs of this machine, or of its fleet, by id. `count` returns the number of slots (see
    `queue.choose`). `oldest` is the id of the job that was the oldest waiting job at its start."""

    count: Callable[[], int]
    threads: dict[str, threading.Thread] = field(default_factory=dict)
    owners: dict[str, str] = field(default_factory=dict)
    oldest: str = ""

    def open_owners(self) -> list[str]:
        """Forget finished jobs, and return the owner of each open job."""
        self.threads = {name: t for name, t in self.threads.items() if t.is_alive()}
        self.owners = {name: self.owners.get(name, "") for name in self.threads}
        return list(self.owners.values())


@dataclass(slots=True)
class FleetSize:
    """The number of slots of the fleet at `address`: one per machine. A job uses one machine while
    it searches or checks its best; other jobs then use the others."""

    address: str
    at_least: int
    _size: int = 0
    _looked: float = float("-inf")

    def __call__(self) -> int:
        if self.address and time.monotonic() - self._looked > timeouts.FLEET_SIZE_CACHE_SECS:
            self._poll()
            self._looked = time.monotonic()
        return max(self.at_least, min(self._size, MOST_ON_A_FLEET))

    def _poll(self) -> None:
        """Read the number of machines; keep the last one if the fleet does not answer."""
        # Start-up: jobs that measure on this machine load no fleet code.
        from tilewright.tuner.measure.fleet.machines import fleet_status
        from tilewright.tuner.measure.protocol import MeasurerError

        try:
            self._size = len(fleet_status(self.address, timeouts.FLEET_STATUS_SECS))
        except (MeasurerError, ModuleNotFoundError):
            return
