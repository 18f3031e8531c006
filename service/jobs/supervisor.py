"""Supervises the worker process: restarts it when it dies, drains it at the end."""

from __future__ import annotations

import io
import json
import logging
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tilewright.service import timeouts
from tilewright.service.errors import ExitCode
from tilewright.service.jobs.heartbeat import Role
from tilewright.service.jobs.worker import WorkerSettings
from tilewright.tuner.process.child_command import module_command

log = logging.getLogger("tilewright.supervisor")

HOPELESS = frozenset({ExitCode.USAGE, ExitCode.DATABASE})
"""Exit codes of a worker that could not start; another worker would fail in the same way."""


_FROM_OUTSIDE = frozenset({-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP})
"""Exit codes of a worker that a signal killed, sent from outside or because memory ran out."""
MOST_DEATHS = 3

Counts = Callable[[dict[str, Any]], None]


@dataclass(frozen=True, slots=True)
class WorkerHealth:
    """Health of the worker. `reason` states why it is not `ready`; a STANDBY can be ready. `deaths`
    counts recent deaths."""

    ready: bool
    pid: int | None
    deaths: int
    reason: str = ""
    role: Role = Role.STANDBY


class Supervisor:
    """Runs `python -m tilewright.service.jobs.process` until `stop`.

    If the first worker cannot use the database, `on_hopeless` ends the service. After any other
    death a new worker resumes the jobs. `on_counts` receives the worker's counts. `clock` and
    `command` are for tests.
    """

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        drain_secs: float,
        on_hopeless: Callable[[], None],
        on_counts: Counts = lambda counts: None,
        clock: Callable[[], float] = time.monotonic,
        command: Sequence[str] = (),
    ) -> None:
        self._command = command or module_command(
            "tilewright.service.jobs.process", str(os.getpid())
        )
        self._settings = settings
        self._drain_secs = drain_secs
        self._on_hopeless = on_hopeless
        self._on_counts = on_counts
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="supervisor", daemon=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._last_beat: float | None = None
        self._role = Role.STANDBY
        self._has_worked = False
        self._blameless = False
        self._deaths: deque[float] = deque(maxlen=100)
        self.exit_code = 0

    def start(self) -> None:
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The worker's process id, or None if there is no worker."""
        with self._lock:
            return self._process.pid if self._process is not None else None

    def health(self) -> WorkerHealth:
        """Return the worker's health. It is ready if it had a recent heartbeat and did not die
        repeatedly."""
        now = self._clock()
        with self._lock:
            pid = self._process.pid if self._process is not None else None
            beat, role = self._last_beat, self._role
            deaths = sum(now - death < timeouts.WORKER_DEATHS_SECS for death in self._deaths)
        if deaths >= MOST_DEATHS:
            secs = timeouts.WORKER_DEATHS_SECS
            reason = f"the worker died {deaths} times within {secs:g} s; see the log"
        elif beat is None:
            reason = "the worker is starting"
        elif now - beat > timeouts.WORKER_SILENT_SECS:
            reason = f"the worker had no heartbeat for {now - beat:.0f} s"
        else:
            return WorkerHealth(True, pid, deaths, role=role)
        return WorkerHealth(False, pid, deaths, reason, role)

    def begin_stop(self) -> None:
        """Request the worker to drain, without waiting."""
        self._stopping.set()
        with self._lock:
            if self._process is not None:
                self._process.terminate()

    def stop(self) -> None:
        """Drain the worker: send SIGTERM, wait `drain_secs`, send SIGKILL to its process group."""
        self.begin_stop()
        if self._thread.ident is None:
            return
        self._thread.join(self._drain_secs)
        if self._thread.is_alive():
            log.warning("the worker did not stop in %s s and is killed", self._drain_secs)
            self.kill()
            self._thread.join()

    def kill(self) -> None:
        self._stopping.set()
        pid = self.pid
        if pid is not None:
            kill_group(pid)

    def _supervise(self) -> None:
        pause_secs = 0.1
        while not self._stopping.is_set():
            started = self._clock()
            code = self._run()
            if self._stopping.is_set():
                return
            if code in HOPELESS and not self._has_worked:
                self.exit_code = code
                self._on_hopeless()
                return
            with self._lock:
                self._deaths.append(self._clock())
            pause_secs = (
                0.1 if self._clock() - started > timeouts.WORKER_HEALTHY_SECS else pause_secs * 2
            )
            log.warning("the worker ended with code %s; starting another", code)
            self._stopping.wait(min(pause_secs, timeouts.WORKER_RESTART_MAX_SECS))

    def _run(self) -> int:
        heard, told = os.pipe()
        try:
            with self._lock:
                if self._stopping.is_set():
                    os.close(heard)
                    return 0
                settings = replace(self._settings, beat_fd=told, blameless=self._blameless)
                killed_for_memory = out_of_memory_kills()
                # A separate group: Ctrl-C at the terminal must not reach it, and all its children
                # can be killed together. It dies with this thread: see `process`.
                self._process = process = subprocess.Popen(
                    self._command,
                    env=worker_environment(),
                    stdin=subprocess.PIPE,
                    pass_fds=[told],
                    start_new_session=True,
                )
        finally:
            os.close(told)
        hung = False
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as stdin:  # it may have ended already
            stdin.write(json.dumps(asdict(settings)).encode())
        with os.fdopen(heard, "rb", buffering=0) as beats:
            hung = self._read_heartbeats(beats)
        if hung:
            log.error(
                "the worker had no heartbeat for %g s and is killed", timeouts.WORKER_HUNG_SECS
            )
            kill_group(process.pid)
        code = process.wait()
        kill_group(process.pid)
        memory = out_of_memory_kills() != killed_for_memory
        self._blameless = code in _FROM_OUTSIDE and not hung and not memory
        with self._lock:
            self._process = self._last_beat = None
            self._role = Role.STANDBY
        return code

    def _read_heartbeats(self, beats: io.FileIO) -> bool:
        """Read heartbeats until the worker ends. Return True if it is silent and must be killed."""
        silent_secs, unfinished, has_lived = 0.0, b"", False
        while True:
            before = time.monotonic()
            ready, _, _ = select.select([beats], [], [], timeouts.SUPERVISOR_POLL_SECS)
            if ready:
                chunk = beats.read(1 << 16)
                if not chunk:
                    return False
                *lines, unfinished = (unfinished + chunk).split(b"\n")
                for line in lines:
                    self._on_heartbeat(line.decode())
                silent_secs, has_lived = 0.0, True
            else:
                # This process may have been suspended, and the worker with it.
                silent_secs += min(time.monotonic() - before, 2 * timeouts.SUPERVISOR_POLL_SECS)
                if has_lived and silent_secs >= timeouts.WORKER_HUNG_SECS:
                    return True

    def _on_heartbeat(self, line: str) -> None:
        self._has_worked = True
        try:
            told = json.loads(line)
        except ValueError:  # a truncated last line
            told = None
        with self._lock:
            self._last_beat = self._clock()
            if told is not None:
                self._role = Role(told.get("role") or self._role)
        if told is not None:
            self._on_counts(told)


def worker_environment() -> dict[str, str]:
    """Return this process's environment without secrets that a worker does not need: a client's
    key, and the database's URL with its password. Other users could read them in /proc."""
    return {n: v for n, v in os.environ.items() if n not in ("TILEWRIGHT_API_KEY", "TILEWRIGHT_DB")}


def out_of_memory_kills() -> int:
    """Return how many processes the kernel has killed because memory ran out; 0 if this is
    unknown."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def kill_group(group: int) -> None:
    """Send SIGKILL to the remaining processes of a group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return
