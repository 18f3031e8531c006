"""Runs a process and restarts it whenever it ends."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.service import timeouts

log = logging.getLogger("tilewright.fleet")


@dataclass(slots=True)
class RestartingProcess:
    """Runs `command` (called before each start) until `stop`; use it as a context manager.

    The process has a separate process group. To stop it, the whole group gets SIGTERM and, after
    `patience_secs`, SIGKILL.
    """

    name: str
    command: Callable[[], Sequence[str]]
    environment: Mapping[str, str]
    patience_secs: float = 5.0
    _process: subprocess.Popen[bytes] | None = None
    _stopping: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def __enter__(self) -> RestartingProcess:
        self._thread = threading.Thread(target=self.run_until_stopped, name=self.name, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        if self._thread is not None:
            self._thread.join()

    @property
    def pid(self) -> int | None:
        """The id of the running process, or None if there is none."""
        with self._lock:
            return self._process.pid if self._process is not None else None

    def run_until_stopped(self) -> None:
        pause_secs = timeouts.RESTART_PAUSE_SECS
        while not self._stopping.is_set():
            started = time.monotonic()
            code = self._run()
            if self._stopping.is_set():
                return
            healthy = time.monotonic() - started > timeouts.RESTART_HEALTHY_SECS
            pause_secs = (
                timeouts.RESTART_PAUSE_SECS
                if healthy
                else min(2 * pause_secs, timeouts.RESTART_PAUSE_MAX_SECS)
            )
            log.warning("%s ended with code %s; starting it again", self.name, code)
            self._stopping.wait(pause_secs)

    def stop(self) -> None:
        """Stop the process permanently. Any thread may call this."""
        self._stopping.set()
        with self._lock:
            process = self._process
        if process is None:
            return
        _signal_group(process.pid, signal.SIGTERM)
        try:
            process.wait(self.patience_secs)
        except subprocess.TimeoutExpired:
            _signal_group(process.pid, signal.SIGKILL)

    def _run(self) -> int:
        with self._lock:
            if self._stopping.is_set():
                return 0
            self._process = process = subprocess.Popen(
                list(self.command()),
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        code = process.wait()
        _signal_group(process.pid, signal.SIGKILL)  # its remaining children
        with self._lock:
            self._process = None
        return code


def _signal_group(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return
