"""A pool of compile workers. It returns object files or typed failures, in the order in which they
complete."""

from __future__ import annotations

import selectors
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.schedules.record import MeasureStatus

from .. import timeouts
from ..codegen.abi import Needs
from ..process.frames import Frame
from .fork_server import ForkedWorker, ForkServer
from .worker import DEFAULT_COMPILER

_RECYCLE_AFTER = 500  # LLVM keeps some memory of every module


@dataclass(frozen=True, slots=True)
class Compiled:
    """The outcome of compiling candidate `key`.

    If `status` is OK, the fields after `detail` are set. Otherwise `detail` is one line for users.
    """

    key: int
    status: MeasureStatus
    secs: float
    detail: str = ""
    object_bytes: bytes = b""
    symbol: str = ""
    workspace_bytes: int = 0
    threads: int = 1
    constants: tuple[int, ...] = ()
    packed_bytes: int = 0
    prepacked_workspace_bytes: int = 0

    @property
    def needs(self) -> Needs:
        return Needs(
            self.workspace_bytes, self.constants, self.packed_bytes, self.prepacked_workspace_bytes
        )


@dataclass(slots=True)
class _Worker:
    """One process, which compiles at most one candidate at a time."""

    process: ForkedWorker
    key: int = -1
    busy: bool = False
    has_ended: bool = False
    started: float = 0.0
    served: int = 0


@dataclass(slots=True)
class CompilePool:
    """A pool of processes that compile in parallel. Leaving the context ends all of them."""

    workers: int = 2
    cpus: tuple[int, ...] = ()
    """The CPUs that the workers may use. Empty means any CPU."""
    deadline_secs: float = timeouts.COMPILE_DEADLINE_SECS
    """A compilation that takes longer is ended."""
    compiler: str = DEFAULT_COMPILER
    """The function that compiles a request, as "module:function"."""
    recycle_after: int = _RECYCLE_AFTER
    """The number of candidates after which a worker is replaced."""
    _server: ForkServer | None = None
    _pool: list[_Worker] = field(default_factory=list)
    _queue: deque[tuple[int, dict[str, Any]]] = field(default_factory=deque)

    def __enter__(self) -> CompilePool:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the workers, without waiting until they are ready."""
        while len(self._pool) < self.workers:
            self._pool.append(self._spawn())

    def close(self) -> None:
        for worker in self._pool:
            worker.process.end()
        self._pool.clear()
        self._queue.clear()
        if self._server is not None:
            self._server.close()
            self._server = None

    def drop(self) -> None:
        """Drop all candidates. Busy workers are ended, and idle workers are kept."""
        self._queue.clear()
        for worker in [worker for worker in self._pool if worker.busy]:
            worker.process.end()
            self._pool.remove(worker)

    def kill(self) -> None:
        """Kill running builds. Any thread may call this. A wait for the builds in another thread
        then ends."""
        server = self._server
        if server is not None:
            server.kill()

    @property
    def pending(self) -> int:
        """The number of submitted candidates whose outcome was not yet returned."""
        return len(self._queue) + sum(w.busy for w in self._pool)

    def submit(self, key: int, document: dict[str, Any]) -> None:
        """Begin to compile `document`, without waiting. The outcome will have this `key`."""
        self._queue.append((key, document))
        self._feed()

    def filenos(self) -> list[int]:
        """Return the descriptors that become readable when an outcome may have arrived."""
        return [w.process.reader.fd for w in self._pool if w.busy]

    @property
    def process_ids(self) -> list[int]:
        """The process numbers of the workers that are already forked."""
        if self._server is not None:
            self._server.receive_pids()
        return [w.process.pid for w in self._pool if w.process.pid is not None]

    def secs_to_deadline(self) -> float | None:
        """Return the seconds until the deadline of the worker that reaches it first, or None if no
        worker is busy."""
        return self._next_wait(None)

    def poll(self, timeout_secs: float | None = 0.0) -> list[Compiled]:
        """Return the outcomes that arrive within `timeout_secs`. If it is None, wait for the first
        outcome.

        Raise RuntimeError if a bug occurred in a worker.
        """
        end = None if timeout_secs is None else time.monotonic() + timeout_secs
        while True:
            outcomes = self._collect(self._next_wait(end))
            self._feed()
            if outcomes or not self.pending or (end is not None and time.monotonic() >= end):
                return outcomes

    def fresh(
        self,
        document: dict[str, Any],
        builds: int = 1,
        look: Callable[[], None] = lambda: None,
    ) -> list[Compiled]:
        """Compile `document` `builds` times in parallel, each time in a process that has compiled
        nothing before.

        The builds run on any CPU, so no kernel should be timed at the same time. `look` is called
        several times per second. An exception that it raises ends the builds.
        """
        pool = replace(
            self, workers=builds, cpus=(), _server=self._running_server(), _pool=[], _queue=deque()
        )
        try:
            pool.start()
            for number in range(builds):
                pool.submit(number, document)
            outcomes: list[Compiled] = []
            while pool.pending:
                outcomes += pool.poll(timeouts.COMPILE_POLL_SECS)
                look()
            return outcomes
        finally:
            self._server = pool._server
            for worker in pool._pool:
                worker.process.end()

    def _next_wait(self, end: float | None) -> float | None:
        """Return the seconds until `end` or the next deadline of a worker. Return None if `end` is
        None and no worker is busy."""
        ends = [w.started + self.deadline_secs for w in self._pool if w.busy]
        ends += [end] if end is not None else []
        return max(0.0, min(ends) - time.monotonic()) if ends else None

    def _collect(self, wait_secs: float | None) -> list[Compiled]:
        busy = [w for w in self._pool if w.busy]
        if not busy:
            return []
        with selectors.DefaultSelector() as selector:
            for worker in busy:
                selector.register(worker.process.reader.fd, selectors.EVENT_READ)
            selector.select(wait_secs)
        outcomes = []
        for worker in busy:
            outcome = self._step(worker)
            if outcome is None:
                continue
            outcomes.append(outcome)
            if worker.has_ended or worker.served >= self.recycle_after:
                worker.process.end()
                self._pool[self._pool.index(worker)] = self._spawn()
        return outcomes

    def _step(self, worker: _Worker) -> Compiled | None:
        """Return the outcome of a busy worker, or None if it is still compiling."""
        secs = time.monotonic() - worker.started
        frames = worker.process.reader.read_some()
        if frames:
            outcome = _compiled(worker.key, frames[0])
            worker.busy = False
            worker.served += 1
            return outcome
        if worker.process.reader.ended:
            status, detail = MeasureStatus.COMPILE_CRASH, worker.process.describe_end()
        elif secs >= self.deadline_secs:
            status = MeasureStatus.COMPILE_TIMEOUT
            detail = f"the compiler did not end within {self.deadline_secs:g} s"
        else:
            return None
        worker.busy, worker.has_ended = False, True
        return Compiled(worker.key, status, secs, detail)

    def _feed(self) -> None:
        for worker in self._pool:
            if not self._queue:
                return
            if not worker.busy:
                key, document = self._queue.popleft()
                self._assign(worker, key, document)

    def _assign(self, worker: _Worker, key: int, document: dict[str, Any]) -> None:
        worker.key, worker.busy, worker.started = key, True, time.monotonic()
        worker.process.ask(Frame(document))

    def _spawn(self) -> _Worker:
        return _Worker(self._running_server().fork(self.cpus))

    def _running_server(self) -> ForkServer:
        """Return the process that forks workers. Start it if it does not run."""
        if self._server is None or self._server.has_ended:
            if self._server is not None:
                self._server.close()
            self._server = ForkServer(self.compiler)
        return self._server


def _compiled(key: int, frame: Frame) -> Compiled:
    """Return the outcome of candidate `key` from the answer of a worker. Raise RuntimeError for a
    bug of the worker."""
    document = dict(frame.document)
    if "bug" in document:
        raise RuntimeError(f"a compile worker failed in our own code:\n{document['bug']}")
    status = MeasureStatus(document.pop("status"))
    constants = tuple(document.pop("constants", ()))
    secs = document.pop("secs")  # without the start-up that the first candidate waits for
    return Compiled(key, status, secs, object_bytes=frame.blob, constants=constants, **document)
