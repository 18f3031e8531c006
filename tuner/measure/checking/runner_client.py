"""The client of the runner process. It starts the runner, sends kernels, and replaces a runner that
has ended."""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import IO, Any

import psutil

from tilewright.schedules.record import MeasureStatus

from ...backend.registry import BACKENDS
from ...process import linux
from ...process.child_command import module_command, tail
from ...process.environment import child_environment
from ...process.frames import Frame, FrameReader, raise_refusal, write_frame

_DEATHS_IN_A_ROW = 3


@dataclass(slots=True)
class RunnerClient:
    """A client of one runner process. Leaving the context ends the runner and its children.

    `start` and `submit` return immediately, and `result` waits. At most one kernel is in progress.
    """

    document: dict[str, Any]
    """The workload that the runner opens, and how."""
    program: str = BACKENDS[0].checker
    """The name of the runner's module."""
    environment: dict[str, str] = field(default_factory=dict)
    on_note: Callable[[dict[str, Any]], None] = lambda note: None
    """Called before each case of a full check with `{"case": N, "of": M}`, N from 0. The runner
    waits until it returns. An exception that it raises ends the check and the runner."""
    opening: dict[str, Any] = field(default_factory=dict)
    """The runner's answer after it has opened the workload. Before that, it is empty."""
    _process: subprocess.Popen[bytes] | None = None
    _errors: IO[bytes] | None = None
    _reader: FrameReader | None = None
    _answer: dict[str, Any] | None = None
    _opened: bool = False
    _busy: bool = False
    _deaths: int = 0

    def __enter__(self) -> RunnerClient:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The runner's process id. Raise RuntimeError if the runner was not started."""
        if self._process is None:
            raise RuntimeError("the runner was not started")
        return self._process.pid

    @property
    def busy(self) -> bool:
        """Return whether there is a submitted kernel whose result was not yet fetched."""
        return self._busy

    def fileno(self) -> int:
        """Return the descriptor that becomes readable when the runner sends a message."""
        assert self._reader is not None
        return self._reader.fd

    @property
    def running(self) -> bool:
        """Return whether a process was started. It may have ended unexpectedly."""
        return self._process is not None

    @property
    def opened(self) -> bool:
        """Return whether `has_answer` or `wait_open` has read the runner's report that it opened
        the workload."""
        return self._opened

    def has_answer(self, timeout_secs: float = 0.0) -> bool:
        """Wait up to `timeout_secs` for a message of the runner. Return whether `result` can return
        immediately.

        Calls of `on_note`, and the message that the workload is open, are handled here too.
        """
        assert self._reader is not None
        while self._answer is None and not self._reader.ended:
            if not (self._reader.buffered or linux.readable(self._reader.fd, timeout_secs)):
                return False
            timeout_secs = 0.0
            if self._opened:
                self._answer = self._next()
            else:
                self.wait_open()
        return True

    def start(self) -> None:
        """Start the runner and make it open the workload. Wait for neither."""
        # The kernel kills the runner when the *thread* that started it ends, so only the main
        # thread may request that. The runner also ends when the pipe is closed.
        main = threading.current_thread() is threading.main_thread()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            module_command(self.program, str(os.getpid() if main else 0)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child_environment(1, **self.environment),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._reader = FrameReader(self._process.stdout.fileno())
        self._opened = self._busy = False
        self._answer = None
        self._write(Frame({"op": "open", **self.document}))

    @contextmanager
    def in_background(self) -> Iterator[None]:
        """Make the runner and its children use only idle cores during the block.

        They are not stopped, because a stopped process does not notice that its parent has ended.
        """
        self._schedule(os.SCHED_IDLE)
        try:
            yield
        finally:
            self._schedule(os.SCHED_OTHER)

    def _schedule(self, policy: int) -> None:
        if self._process is None:
            return
        with suppress(psutil.NoSuchProcess):
            runner = psutil.Process(self._process.pid)
            for process in (runner, *runner.children(recursive=True)):
                # the process has just ended, or the kernel lacks this policy
                with suppress(OSError):
                    os.sched_setscheduler(process.pid, policy, os.sched_param(0))

    def kill(self) -> None:
        """End the runner. Any thread may call this. A wait for an answer in another thread then
        ends."""
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                stream.close()
        self._process = self._errors = self._reader = self._answer = None
        self._opened = self._busy = False

    def wait_open(self) -> dict[str, Any] | None:
        """Wait until the workload is open, and return the runner's answer, or None if the runner
        ended unexpectedly.

        Raise WorkloadError if the workload cannot be verified.
        """
        if self._opened:
            return {}
        answer = self._read()
        self._opened = answer is not None
        self.opening = answer or {}
        return answer

    def submit(
        self,
        job: dict[str, Any],
        object_bytes: bytes,
        deadline_secs: float,
        op: str = "measure",
    ) -> None:
        """Submit a kernel to be verified and timed. `job` has the other fields of `job.CheckJob`.

        If `op` is "check", the kernel is verified on every case. The deadline applies to each case.
        """
        if self._process is None:
            self.start()
        document = {"op": op, "job": job, "deadline_secs": deadline_secs}
        self._busy = True
        self._write(Frame(document, object_bytes))

    def result(self) -> dict[str, Any]:
        """Wait for the result document of the submitted kernel, and return it.

        If the runner ended unexpectedly, the status is LOST, and the next `submit` starts a new
        runner. Raise WorkloadError if the workload cannot be verified. Raise RuntimeError if the
        runner has a bug, or ended unexpectedly three times in a row.
        """
        answer, self._answer = self._answer, None
        while answer is None and self.wait_open() is not None and not self._ended:
            answer = self._next()
        self._busy = False
        if answer is not None:
            self._deaths = 0
            return answer
        assert self._process is not None
        code = self._process.wait()
        self._deaths += 1
        tail = self._error_tail()
        self.close()
        if self._deaths >= _DEATHS_IN_A_ROW:
            raise RuntimeError(
                f"the runner ended {self._deaths} times in a row, last with exit code {code}: "
                f"{tail}"
            )
        return {
            "status": MeasureStatus.LOST,
            "detail": f"the runner ended with exit code {code}",
        }

    @property
    def _ended(self) -> bool:
        return self._reader is None or self._reader.ended

    def _next(self) -> dict[str, Any] | None:
        """Read the next message of the runner. Return it if it is an answer. Otherwise call
        `on_note` with it, and return None."""
        document = self._read()
        if document is None or "case" not in document:
            return document
        self.on_note(document)
        self._write(Frame({"op": "go on"}))
        return None

    def _write(self, frame: Frame) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            write_frame(self._process.stdin.fileno(), frame)
        except BrokenPipeError:
            return  # `_read` finds the end of the runner's output, and reports the failure

    def _read(self) -> dict[str, Any] | None:
        assert self._reader is not None
        frame = self._reader.read_frame()
        if frame is None:
            return None
        raise_refusal(frame.document)
        if "bug" in frame.document:
            raise RuntimeError(
                f"the runner failed in our own code:\n{frame.document['bug']}{self._error_tail()}"
            )
        return frame.document

    def _error_tail(self) -> str:
        assert self._errors is not None
        return tail(self._errors)
