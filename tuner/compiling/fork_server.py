"""The process that forks compile workers, as seen by the process that uses them.

It has loaded LLVM and all modules, and has compiled nothing. So a worker starts in a millisecond,
in the state of a process that has compiled nothing, and all workers together load Python and LLVM
once.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import IO

from ..process.child_command import module_command, tail
from ..process.environment import child_environment
from ..process.frames import Frame, FrameReader, write_frame


class ForkedWorker:
    """One worker: its pipes, its standard error, and its process number once it is known."""

    def __init__(self, server: ForkServer, request: int, answer: int, errors: IO[bytes]) -> None:
        os.set_blocking(answer, False)
        self.server = server
        self.reader = FrameReader(answer)
        self.errors = errors
        self.pid: int | None = None
        self._request = request

    def ask(self, frame: Frame) -> None:
        """Send a request. If the worker has ended, `reader` detects it."""
        with suppress(BrokenPipeError):
            write_frame(self._request, frame)

    def end(self) -> None:
        """Kill the worker and close its pipes. A worker that is not forked yet ends when it is."""
        self.server.receive_pids()
        if self.pid is not None and not self.server.has_ended:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.server.exit_code(self)
        os.close(self._request)
        os.close(self.reader.fd)
        self.errors.close()

    def describe_end(self) -> str:
        """Return how the process ended, and the last line of its standard error."""
        code = self.server.exit_code(self)
        lines = (tail(self.errors) or self.server.error_text()).strip().splitlines()
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        return f"the compiler ended with {how}" + (f": {lines[-1][:300]}" if lines else "")


class ForkServer:
    """A running process of `worker.main` for the compile function `compiler`. It ends with this
    process."""

    def __init__(self, compiler: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._unborn: deque[ForkedWorker] = deque()
        with theirs:
            self._process = subprocess.Popen(
                module_command("tilewright.tuner.compiling.worker", compiler, str(theirs.fileno())),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=child_environment(1),
                start_new_session=True,
            )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def fork(self, cpus: Sequence[int]) -> ForkedWorker:
        """Begin to fork a worker that uses `cpus`, without waiting until it exists.

        Empty `cpus` mean any CPU. If the server has ended, the worker's reader detects it.
        """
        request, ask = os.pipe()
        answer, tell = os.pipe()
        errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the worker
        worker = ForkedWorker(self, ask, answer, errors)
        with suppress(BrokenPipeError, ConnectionResetError):
            order = " ".join(map(str, ["fork", *cpus]))
            socket.send_fds(self._control, [order.encode()], [request, tell, errors.fileno()])
            self._unborn.append(worker)
        os.close(request)
        os.close(tell)
        return worker

    def receive_pids(self, *, wait: bool = False) -> None:
        """Set the process numbers of forked workers that have arrived, or of all if `wait`."""
        while self._unborn and (pid := self._receive(wait=wait)):
            self._unborn.popleft().pid = int(pid)

    def exit_code(self, worker: ForkedWorker) -> int:
        """Wait until `worker` ends, and return its exit code, negative for a signal. If the server
        has ended, return the server's."""
        self.receive_pids(wait=True)
        if worker.pid is not None and not self.has_ended:
            with suppress(BrokenPipeError, ConnectionResetError):
                self._control.send(f"wait {worker.pid}".encode())
                if code := self._receive(wait=True):
                    worker.pid = None
                    return int(code)
        return self._process.wait()

    def error_text(self) -> str:
        """Return the end of the server's standard error."""
        return "" if self._errors.closed else tail(self._errors)

    def kill(self) -> None:
        """Kill the server and all workers, which form one process group."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the server and all workers, and wait for the server."""
        self.kill()
        self._process.wait()
        self._unborn.clear()
        self._control.close()
        self._errors.close()

    def _receive(self, *, wait: bool) -> bytes:
        """Return the next answer, or b"" if the server has ended or if none has arrived."""
        try:
            return self._control.recv(64, 0 if wait else socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionResetError):
            return b""
