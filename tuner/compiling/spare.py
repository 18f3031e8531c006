"""Spare processes for rebuilds. They have loaded LLVM and all modules, and have compiled nothing.

A compile worker forks a spare after loading LLVM, before its first candidate. For each build, the
spare forks a child that compiles and exits. So every build begins in the state of a process that
has compiled nothing, but does not wait for the start of Python and LLVM.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.schedules.record import MeasureStatus

from ..process.frames import Frame, FrameReader, write_frame
from ..process.serving import end_with


@dataclass(frozen=True, slots=True)
class SpareEnds:
    """The spare's ends of its pipes, as file descriptors. `str` gives the argument for the
    worker."""

    requests: int
    answers: int

    def __str__(self) -> str:
        return f"{self.requests},{self.answers}"

    @classmethod
    def parse(cls, text: str) -> SpareEnds:
        requests, answers = (int(fd) for fd in text.split(","))
        return cls(requests, answers)

    def close(self) -> None:
        os.close(self.requests)
        os.close(self.answers)


class Spare:
    """A spare, as seen by the process that started its worker."""

    def __init__(self) -> None:
        requests, self._ask = os.pipe()
        answer, answers = os.pipe()
        self.ends = SpareEnds(requests, answers)
        os.set_blocking(answer, False)
        self.reader = FrameReader(answer)

    def ask(self, document: dict[str, Any]) -> None:
        """Begin to build `document`. `reader` receives the answer, or the end of the process."""
        try:
            write_frame(self._ask, Frame(document))
        except BrokenPipeError:
            return  # the reader detects the end of the spare

    def close(self) -> None:
        """Close the pipes. The spare then ends."""
        os.close(self._ask)
        os.close(self.reader.fd)


def fork_spare(
    ends: SpareEnds, answer: Callable[[dict[str, Any]], Frame], unused: Sequence[int]
) -> bool:
    """Fork a spare of this process, which must have one thread.

    Return False in this process. Return True in the spare, when it gets no more requests. The spare
    closes the descriptors `unused`, whose other ends must detect the end of this process.
    """
    if os.fork():
        ends.close()
        return False
    for fd in unused:
        os.close(fd)
    reader = FrameReader(ends.requests)
    while (frame := reader.read_frame()) is not None:
        _build(frame.document, ends, answer)
    return True


def _build(
    document: dict[str, Any], ends: SpareEnds, answer: Callable[[dict[str, Any]], Frame]
) -> None:
    start = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        done = False
        try:
            threading.Thread(target=end_with, args=(ends.requests,), daemon=True).start()
            write_frame(ends.answers, answer(document))
            done = True
        finally:
            if not done:
                write_frame(ends.answers, Frame({"bug": traceback.format_exc()}))
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status:
        code = os.waitstatus_to_exitcode(status)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        detail = f"the compiler ended with {how}"
        secs = time.perf_counter() - start
        crashed = {"status": MeasureStatus.COMPILE_CRASH, "detail": detail, "secs": secs}
        write_frame(ends.answers, Frame(crashed))
