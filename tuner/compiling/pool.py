"""A pool of compile workers. It returns object files or typed failures, in the order in which they
complete."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO, Any

from tilewright.schedules.record import MeasureStatus

from .. import timeouts
from ..codegen.abi import Needs
from ..process.child_command import module_command, tail
from ..process.environment import child_environment
from ..process.frames import Frame, FrameReader, write_frame
from .spare import Spare
from .worker import DEFAULT_COMPILER

_RECYCLE_AFTER = 500  # LLVM keeps some memory of every module
_SPARES = 2  # a full check builds twice


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

    process: subprocess.Popen[bytes]
    errors: IO[bytes]
    reader: FrameReader
    key: int = -1
    spares: tuple[Spare, ...] = ()
    busy: bool = False
    started: float = 0.0
    served: int = 0

    def describe_end(self) -> str:
        """Return the way in which the process ended, and the last line of its standard error."""
        code = self.process.wait()
        lines = tail(self.errors).strip().splitlines()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the compiler ended with {how}" + (f": {lines[-1][:300]}" if lines else "")


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
    spares: int = _SPARES
    """The number of spare processes of each worker (see `spare`)."""
    start_secs: float = 1.0
    """Time that the last worker took to start and to import modules, as a prediction for the next
    one."""
    _pool: list[_Worker] = field(default_factory=list)
    _queue: deque[tuple[int, dict[str, Any]]] = field(default_factory=deque)
    _fresh_pool: CompilePool | None = None

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
            _end(worker)
        self._pool.clear()
        self._queue.clear()

    def drop(self) -> None:
        """Drop all candidates. Busy workers are ended, and idle workers are kept."""
        self._queue.clear()
        for worker in [worker for worker in self._pool if worker.busy]:
            _end(worker)
            self._pool.remove(worker)

    def kill(self) -> None:
        """Kill running builds. Any thread may call this. A wait for the builds in another thread
        then ends."""
        for worker in list(self._pool):
            _kill_group(worker)
        if self._fresh_pool is not None:
            self._fresh_pool.kill()

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
        return [w.reader.fd for w in self._pool if w.busy]

    @property
    def process_ids(self) -> list[int]:
        return [w.process.pid for w in self._pool]

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

        The builds run on any CPU, so no kernel should be timed at the same time. The workers'
        spares are used if there are enough of them. `look` is called several times per second. An
        exception that it raises ends the builds.
        """
        spares = [spare for worker in self._pool for spare in worker.spares]
        if len(spares) >= builds:
            return self._in_spares(spares[:builds], document, look)
        pool = replace(
            self, workers=builds, cpus=(), spares=0, _pool=[], _queue=deque(), _fresh_pool=None
        )
        self._fresh_pool = pool
        try:
            with pool:
                for number in range(builds):
                    pool.submit(number, document)
                outcomes: list[Compiled] = []
                while pool.pending:
                    outcomes += pool.poll(timeouts.COMPILE_POLL_SECS)
                    look()
            return outcomes
        finally:
            self._fresh_pool = None

    def _in_spares(
        self, spares: Sequence[Spare], document: dict[str, Any], look: Callable[[], None]
    ) -> list[Compiled]:
        """Build `document` once in each of `spares`. Close the spares that are late, and all spares
        if `look` raises."""
        end = time.monotonic() + self.deadline_secs
        for spare in spares:
            spare.ask(document)
        outcomes: dict[Spare, Compiled] = {}
        while len(outcomes) < len(spares):
            waiting = [spare for spare in spares if spare not in outcomes]
            with selectors.DefaultSelector() as selector:
                for spare in waiting:
                    selector.register(spare.reader.fd, selectors.EVENT_READ)
                selector.select(min(max(end - time.monotonic(), 0.0), timeouts.COMPILE_POLL_SECS))
            try:
                look()
            except BaseException:
                self._close_spares(waiting)
                raise
            if time.monotonic() >= end:
                secs, detail = self.deadline_secs, f"did not end within {self.deadline_secs:g} s"
                late = Compiled(0, MeasureStatus.COMPILE_TIMEOUT, secs, f"the compiler {detail}")
                outcomes |= dict.fromkeys(waiting, late)
                self._close_spares(waiting)
                break
            for spare in waiting:
                frames = spare.reader.read_some()
                if frames:
                    outcomes[spare] = _compiled(0, frames[0])
                elif spare.reader.ended and spare not in outcomes:
                    crashed = MeasureStatus.COMPILE_CRASH
                    outcomes[spare] = Compiled(0, crashed, 0.0, "the compiler was ended")
                    self._close_spares([spare])
        return [outcomes[spare] for spare in spares]

    def _close_spares(self, spares: Sequence[Spare]) -> None:
        for worker in self._pool:
            worker.spares = tuple(spare for spare in worker.spares if spare not in spares)
        for spare in spares:
            spare.close()

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
                selector.register(worker.reader.fd, selectors.EVENT_READ)
            selector.select(wait_secs)
        outcomes = []
        for worker in busy:
            outcome = self._step(worker)
            if outcome is None:
                continue
            outcomes.append(outcome)
            if worker.process.poll() is not None or worker.served >= self.recycle_after:
                _end(worker)
                self._pool[self._pool.index(worker)] = self._spawn()
        return outcomes

    def _step(self, worker: _Worker) -> Compiled | None:
        """Return the outcome of a busy worker, or None if it is still compiling."""
        secs = time.monotonic() - worker.started
        frames = worker.reader.read_some()
        if frames:
            outcome = _compiled(worker.key, frames[0])
            worker.busy = False
            worker.served += 1
            self.start_secs = frames[0].document.get("start_secs", self.start_secs)
            return outcome
        if worker.reader.ended:
            status, detail = MeasureStatus.COMPILE_CRASH, worker.describe_end()
        elif secs >= self.deadline_secs:
            _end(worker)
            status = MeasureStatus.COMPILE_TIMEOUT
            detail = f"the compiler did not end within {self.deadline_secs:g} s"
        else:
            return None
        worker.busy = False
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
        stdin = worker.process.stdin
        assert stdin is not None
        try:
            write_frame(stdin.fileno(), Frame(document))
        except BrokenPipeError:
            return  # the worker ended while idle, which `_step` reports

    def _spawn(self) -> _Worker:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the worker)
        wanted = self.spares - sum(len(worker.spares) for worker in self._pool)
        here = -(-max(wanted, 0) // max(self.workers - len(self._pool), 1))
        spares = tuple(Spare() for _ in range(here))
        process = subprocess.Popen(
            module_command(
                "tilewright.tuner.compiling.worker",
                self.compiler,
                ",".join(map(str, self.cpus)),
                *(str(spare.ends) for spare in spares),
            ),
            pass_fds=[fd for s in spares for fd in (s.ends.requests, s.ends.answers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=child_environment(1),
            start_new_session=True,
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        for spare in spares:
            spare.ends.close()
        return _Worker(process, errors, FrameReader(process.stdout.fileno()), spares=spares)


def _compiled(key: int, frame: Frame) -> Compiled:
    """Return the outcome of candidate `key` from the answer of a worker. Raise RuntimeError for a
    bug of the worker."""
    document = dict(frame.document)
    if "bug" in document:
        raise RuntimeError(f"a compile worker failed in our own code:\n{document['bug']}")
    status = MeasureStatus(document.pop("status"))
    constants = tuple(document.pop("constants", ()))
    document.pop("start_secs", None)
    secs = document.pop("secs")  # without the start-up that the first candidate waits for
    return Compiled(key, status, secs, object_bytes=frame.blob, constants=constants, **document)


def _kill_group(worker: _Worker) -> None:
    """Kill the worker and its spares, which form one process group."""
    with suppress(ProcessLookupError):
        os.killpg(worker.process.pid, signal.SIGKILL)


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.wait()
    for spare in worker.spares:
        spare.close()
    worker.spares = ()
    for stream in (worker.process.stdin, worker.process.stdout, worker.errors):
        if stream is not None:
            stream.close()
