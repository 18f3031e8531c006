"""A helper process for computations that may take arbitrarily long or end their process."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field
from importlib import import_module
from typing import IO, Any

from tilewright.schedules.errors import ScheduleError, TargetError, TilewrightError, WorkloadError

from .. import timeouts
from ..process.child_command import module_command, tail
from ..process.environment import child_environment
from ..process.frames import Frame, FrameReader, write_frame
from ..process.serving import end_with, limit_memory, take_over_pipes
from .deadline import DeadlineError, late_message


class CompileError(TilewrightError):
    """LLVM rejected a module, ran out of memory or crashed."""

    code = "compile_failed"
    title = "LLVM compilation failed"
    advice = "Tune the workload: a search skips schedules that do not compile."


@dataclass(slots=True)
class HelperProcess:
    """A helper process. The first call starts it. A call replaces it if it is late or has ended.

    Calls from several threads run in sequence. The deadline of a call includes its wait for earlier
    calls.
    """

    deadline_secs: float = timeouts.COMPILE_DEADLINE_SECS
    _process: subprocess.Popen[bytes] | None = None
    _reader: FrameReader | None = None
    _errors: IO[bytes] | None = None
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def call(
        self, function: str, document: dict[str, Any], what: str, secs: float | None = None
    ) -> Frame:
        """Return the result of calling `function` ("module:function") with `document` in the
        helper.

        `what` names the computation in messages. `secs` shortens the deadline. Raise DeadlineError
        if the call takes too long, and CompileError if the process ended. Raise RuntimeError if the
        function has a bug. A ScheduleError, TargetError or WorkloadError of the function is raised
        here.
        """
        allowed = self.deadline_secs if secs is None else min(secs, self.deadline_secs)
        end = time.monotonic() + allowed
        if allowed <= 0.0 or not self._turn.acquire(timeout=allowed):
            raise DeadlineError(late_message(what, allowed))
        try:
            if self._process is not None and self._process.poll() is not None:
                self.close()  # the process ended while idle
            if self._process is None:
                self._start()
                end = max(end, time.monotonic() + timeouts.HELPER_START_SECS)
            return self._answer(function, document, what, end, allowed)
        finally:
            self._turn.release()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout, self._errors):
                if stream is not None:
                    stream.close()
        self._process = self._reader = self._errors = None

    def forget(self) -> None:
        """Make the next call start another process. A forked child calls this, because its parent
        owns the process."""
        self._process = self._reader = self._errors = None
        self._turn = threading.Lock()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            module_command("tilewright.tuner.compiling.helper_process"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=child_environment(1),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._reader = FrameReader(self._process.stdout.fileno())

    def _answer(
        self, function: str, document: dict[str, Any], what: str, end: float, allowed: float
    ) -> Frame:
        assert self._process is not None
        assert self._reader is not None
        assert self._process.stdin is not None
        try:
            write_frame(
                self._process.stdin.fileno(), Frame({"function": function, "document": document})
            )
        except BrokenPipeError:  # the process ended while idle
            self.close()
            raise CompileError(f"{what}: the helper process has ended; try again") from None
        with selectors.DefaultSelector() as selector:
            selector.register(self._reader.fd, selectors.EVENT_READ)
            while True:
                ready = selector.select(max(end - time.monotonic(), 0.0))
                frames = self._reader.read_some() if ready else []
                if frames:
                    return _result(frames[0])
                if self._reader.ended:
                    raise CompileError(f"{what}: {self._last_words()}")
                if time.monotonic() >= end:
                    self.close()
                    raise DeadlineError(late_message(what, allowed))

    def _last_words(self) -> str:
        assert self._process is not None
        assert self._errors is not None
        code = self._process.wait()
        lines = [line.strip() for line in tail(self._errors).splitlines() if line.strip()]
        self.close()
        said = [line for line in lines if "LLVM ERROR" in line]
        last = f": {lines[-1]}" if lines else ""
        words = said[-1] if said else f"the helper process ended with code {code}{last}"
        return words[:300]


def _result(frame: Frame) -> Frame:
    """Return the frame of a successful call. Raise the error of a failed call."""
    error = frame.document.get("error")
    if error is None:
        return frame
    detail = frame.document["detail"]
    if error == "workload":
        raise WorkloadError(detail, code=frame.document["code"])
    if error == "schedule":
        raise ScheduleError(frame.document["primitive"], frame.document["reason"])
    if error == "target":
        raise TargetError(detail)
    if error == "compile":
        raise CompileError(detail)
    raise RuntimeError(f"a helper process failed in our own code:\n{detail}")


_shared = HelperProcess()


def shared_helper() -> HelperProcess:
    """Return the helper that all threads of this process share. It ends with this process."""
    return _shared


os.register_at_fork(after_in_child=_shared.forget)


def _carried_out(function: str, document: dict[str, Any]) -> Frame:
    module, _, name = function.partition(":")
    try:
        frame: Frame = getattr(import_module(module), name)(document)
        return frame
    except WorkloadError as error:
        return Frame({"error": "workload", "detail": str(error), "code": error.code})
    except ScheduleError as error:
        found = {"primitive": str(error.primitive), "reason": error.reason}
        return Frame({"error": "schedule", "detail": str(error), **found})
    except TargetError as error:
        return Frame({"error": "target", "detail": str(error)})
    except CompileError as error:  # from a helper of this helper
        return Frame({"error": "compile", "detail": str(error)})
    except MemoryError:
        return Frame({"error": "compile", "detail": "needs more memory than is allowed"})
    except Exception as error:  # noqa: BLE001  # the caller raises it
        if type(error) is RuntimeError:  # the only exception type of llvmlite
            detail = " ".join(str(error).strip().splitlines()[:3])
            return Frame({"error": "compile", "detail": f"LLVM refuses the module: {detail}"})
        return Frame({"error": "bug", "detail": traceback.format_exc()})


def main() -> None:
    """Read requests from standard input, and write the answers to standard output."""
    requests, answers = take_over_pipes()
    threading.Thread(target=end_with, args=(requests,), daemon=True).start()
    limit_memory()
    reader = FrameReader(requests)
    while (frame := reader.read_frame()) is not None:
        write_frame(answers, _carried_out(frame.document["function"], frame.document["document"]))


if __name__ == "__main__":
    main()
