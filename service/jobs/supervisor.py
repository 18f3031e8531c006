"""Keeps the worker process running: starts it again when it dies, drains it at the end."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict

from service.exit_codes import ExitCode
from service.jobs.worker import ENVIRONMENT, WorkerSettings

log = logging.getLogger("tilewright.supervisor")

HOPELESS = frozenset({ExitCode.DATABASE, ExitCode.USAGE})
LONGEST_PAUSE_SECS = 10.0
HEALTHY_SECS = 30.0


class Supervisor:
    """Runs `python -m service.jobs.worker` until `stop`.

    A worker that cannot use the database ends the service (`on_hopeless`); any other death is
    followed by a new worker, which takes the job up from its records.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        drain_secs: float,
        on_hopeless: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._drain_secs = drain_secs
        self._on_hopeless = on_hopeless
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="supervisor", daemon=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.exit_code = 0

    def start(self) -> None:
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The worker's process id, None while there is none."""
        with self._lock:
            return self._process.pid if self._process is not None else None

    def stop(self) -> None:
        """Drain the worker: SIGTERM, `drain_secs` of patience, SIGKILL to its whole group."""
        self._stopping.set()
        with self._lock:
            process = self._process
            if process is not None:
                process.terminate()
        if self._thread.ident is None:
            return
        self._thread.join(self._drain_secs)
        if self._thread.is_alive() and process is not None:
            log.warning("the worker did not stop in %s s and is killed", self._drain_secs)
            kill_group(process.pid)
            self._thread.join()

    def _keep(self) -> None:
        pause_secs = 0.1
        while not self._stopping.is_set():
            started = time.monotonic()
            code = self._run()
            if self._stopping.is_set():
                return
            if code in HOPELESS:
                self.exit_code = code
                self._on_hopeless()
                return
            pause_secs = 0.1 if time.monotonic() - started > HEALTHY_SECS else pause_secs * 2
            log.warning("the worker ended with code %s; starting another", code)
            self._stopping.wait(min(pause_secs, LONGEST_PAUSE_SECS))

    def _run(self) -> int:
        with self._lock:
            if self._stopping.is_set():
                return 0
            # A group of its own: Ctrl-C at the terminal must not reach it, and all that it
            # started can be ended together.
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "service.jobs.worker"],
                env={**_environment(), ENVIRONMENT: json.dumps(asdict(self._settings))},
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        code = process.wait()
        kill_group(process.pid)
        with self._lock:
            self._process = None
        return code


def _environment() -> dict[str, str]:
    """Ours, without what a worker has no use for: the key of a client."""
    return {name: value for name, value in os.environ.items() if name != "TILEWRIGHT_API_KEY"}


def kill_group(group: int) -> None:
    """SIGKILL to what is left of a process group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
