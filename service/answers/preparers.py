"""The processes that prepare answers, started when preparations wait."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tilewright.tuner.process.child_command import module_command

SECRETS = ("TILEWRIGHT_API_KEY", "TILEWRIGHT_DB")
"""Variables that a preparer does not need, and that other users may read in its environment."""

GRACE_SECS = 2.0
PAUSE_SECS, LONGEST_PAUSE_SECS = 1.0, 60.0
"""The pause after a process that failed, doubled each time."""


@dataclass(slots=True)
class Preparers:
    """Up to `processes` processes that prepare answers in the database at `db_url`, which may hold
    `database_bytes`. They end when they are idle, and with their parent. While every one fails, as
    on a full disk, the next is started after a growing pause. Threads may share it."""

    db_url: str
    processes: int
    json_log: bool = False
    database_bytes: int = 0
    clock: Callable[[], float] = time.monotonic
    _failures: int = 0
    _not_before: float = float("-inf")
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closed: bool = False

    def wake(self, waiting: int = 1) -> None:
        """Start processes for `waiting` preparations."""
        with self._lock:
            for one in self._running:
                self._note_end(one.poll())
            self._running = [one for one in self._running if one.poll() is None]
            if self._closed or self.clock() < self._not_before:
                return
            most = 1 if self._failures else self.processes  # one tests whether it works again
            while len(self._running) < min(most, waiting):
                self._running.append(self._start())

    def close(self) -> None:
        """End all processes; others continue their preparations."""
        with self._lock:
            self._closed = True
            running, self._running = self._running, []
        for one in running:
            one.terminate()
        for one in running:
            with suppress(subprocess.TimeoutExpired):
                one.wait(GRACE_SECS)
            _kill_group(one.pid)
            one.wait()

    def _note_end(self, code: int | None) -> None:
        """Count a failure by the exit code of a process, None while it lives. A signal is no
        failure: it comes from outside, or from native code."""
        if code == 0:
            self._failures = 0
        elif code is not None and code > 0:
            self._failures += 1
            pause_secs = min(PAUSE_SECS * 2 ** (self._failures - 1), LONGEST_PAUSE_SECS)
            self._not_before = self.clock() + pause_secs

    def _start(self) -> subprocess.Popen[bytes]:
        told = json.dumps(
            {
                "db_url": self.db_url,
                "json_log": self.json_log,
                "database_bytes": self.database_bytes,
            }
        )
        # A group of its own, so that all that it started can be ended together.
        started = subprocess.Popen(
            module_command("tilewright.service.answers.preparing"),
            env={n: v for n, v in os.environ.items() if n not in SECRETS},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert started.stdin is not None
        with suppress(BrokenPipeError), started.stdin:  # others may read its environment
            started.stdin.write(told.encode())
        return started


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
