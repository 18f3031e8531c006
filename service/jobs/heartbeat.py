"""The worker's heartbeat to its supervisor: its role and its counts."""

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
    """The part of a process in running jobs.

    LEADER: its worker coordinates the database and runs jobs. STANDBY: its worker waits while
    another process leads, and takes over. REPLICA: it has no worker (`serve --no-workers`). All of
    them answer requests; gauges of a worker's activity are meaningful on the leader only.
    """

    LEADER = "leader"
    STANDBY = "standby"
    REPLICA = "replica"


@dataclass(slots=True)
class Heartbeat:
    """Writes role and counts to `fd` every `WORKER_HEARTBEAT_SECS`, from the first role until
    `stop` is set. If `fd` is None, nothing is written."""

    fd: int | None
    counters: Counters
    stop: threading.Event
    role: Role | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take_role(self, role: Role) -> None:
        """Report `role` from now on."""
        with self._lock:
            begins, self.role = self.role is None, role
        if begins and self.fd is not None:
            threading.Thread(target=self._beat, args=(self.fd,), daemon=True).start()

    def _beat(self, fd: int) -> None:
        while True:
            try:
                os.write(fd, (json.dumps(self._news()) + "\n").encode())
            except OSError:
                return  # the supervisor has ended, so the kernel will kill this process
            if self.stop.wait(timeouts.WORKER_HEARTBEAT_SECS):
                return

    def _news(self) -> dict[str, Any]:
        return {"pid": os.getpid(), "role": self.role, **self.counters.take()}
