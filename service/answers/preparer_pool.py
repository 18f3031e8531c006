"""A pool of preparer processes, started on demand."""

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

from tilewright.service import timeouts
from tilewright.tuner.process.child_command import module_command

SECRETS = ("TILEWRIGHT_API_KEY", "TILEWRIGHT_DB")
"""Environment variables that a preparer does not need. Other users could read them in /proc."""


@dataclass(slots=True)
class PreparerPool:
    """Up to `processes` preparers on the database at `db_url`, limited to `database_bytes`. A
    preparer ends when it is idle or its parent ends. After failures, such as a full disk, the next
    preparer starts after an increasing pause. Thread-safe."""

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
        """Start preparers for `waiting` preparations, up to the limit."""
        with self._lock:
            for one in self._running:
                self._on_end(one.poll())
            self._running = [one for one in self._running if one.poll() is None]
            if self._closed or self.clock() < self._not_before:
                return
            # After a failure, one preparer tests whether preparing works again.
            most = 1 if self._failures else self.processes
            while len(self._running) < min(most, waiting):
                self._running.append(self._start())

    def close(self) -> None:
        """Stop all preparers. Preparers of other services continue their preparations."""
        with self._lock:
            self._closed = True
            running, self._running = self._running, []
        for one in running:
            one.terminate()
        for one in running:
            with suppress(subprocess.TimeoutExpired):
                one.wait(timeouts.PREPARER_STOP_SECS)
            _kill_group(one.pid)
            one.wait()

    def _on_end(self, code: int | None) -> None:
        """Handle the exit code of a preparer (None: it is running). Death by a signal is not a
        failure, because the cause is another process or native code."""
        if code == 0:
            self._failures = 0
        elif code is not None and code > 0:
            self._failures += 1
            pause_secs = min(
                timeouts.PREPARER_RESTART_SECS * 2 ** (self._failures - 1),
                timeouts.PREPARER_RESTART_MAX_SECS,
            )
            self._not_before = self.clock() + pause_secs

    def _start(self) -> subprocess.Popen[bytes]:
        settings = json.dumps(
            {
                "db_url": self.db_url,
                "json_log": self.json_log,
                "database_bytes": self.database_bytes,
            }
        )
        # A separate group, so that its children can be killed with it.
        started = subprocess.Popen(
            module_command("tilewright.service.answers.preparer"),
            env={n: v for n, v in os.environ.items() if n not in SECRETS},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert started.stdin is not None
        with suppress(BrokenPipeError), started.stdin:  # other users could read the environment
            started.stdin.write(settings.encode())
        return started


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
