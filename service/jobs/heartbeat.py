"""What a worker tells its supervisor: that it lives, which role it has, and what it counted."""

from __future__ import annotations

import json
import os
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tilewright.service import timeouts

if TYPE_CHECKING:
    from tilewright.service.jobs.counters import Counters


class Role(StrEnum):
    """What a process of the service does about jobs.

    LEADER: its worker coordinates the database and runs jobs. STANDBY: its worker waits while
    another process leads, and takes over. REPLICA: it has no worker (`serve --no-workers`). All
    of them answer requests; the gauges of a worker's activity mean something at the leader only.
    """

    LEADER = "leader"
    STANDBY = "standby"
    REPLICA = "replica"


@dataclass(slots=True)
class Heartbeat:
    """Beats on `fd` twice a second, from the first role on until `stop`; None beats nowhere."""

    fd: int | None
    tally: Counters
    stop: threading.Event
    role: Role | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take_role(self, role: Role) -> None:
        """Beat with this role from now on."""
        with self._lock:
            begins, self.role = self.role is None, role
        if begins and self.fd is not None:
            threading.Thread(target=self._beat, args=(self.fd,), daemon=True).start()

    def _beat(self, fd: int) -> None:
        while True:
            try:
                os.write(fd, (json.dumps(self._news()) + "\n").encode())
            except OSError:
                return  # the supervisor is gone, and the kernel is about to end this process too
            if self.stop.wait(timeouts.WORKER_HEARTBEAT_SECS):
                return

    def _news(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "role": self.role, **self.tally.take()}
