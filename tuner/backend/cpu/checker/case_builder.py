"""A process that builds the cases of a full check while the kernel runs on earlier cases.

The inputs, expected values and error bounds of a large workload take hundreds of megabytes per
case, and mapping new pages costs more than the computation. This process forks no children, so it
can reuse its memory. (If it had children, each page that they share would be copied when it is
written.) It returns cases in shared memory that only this process can write.
"""

from __future__ import annotations

import mmap
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress

from tilewright.schedules.errors import WorkloadError

from ....judge.cases import CheckCase
from ....process import linux
from ....process.frames import Frame, FrameReader, raise_refusal, refusal, write_frame

_ALIGN_BYTES = 64
_SLOTS = 2  # the client reads one case while this process writes the next


class CaseBuilder:
    """The cases of an iterator, which another process builds one case in advance.

    A case is valid until the next call of `take`. Leaving the context ends the process.
    """

    def __init__(self, cases: Callable[[], Iterator[CheckCase]]) -> None:
        self._cases = cases
        self._memory = [os.memfd_create(f"case-{n}") for n in range(_SLOTS)]
        self._cases_taken = 0

    def __enter__(self) -> CaseBuilder:
        ours, theirs = os.pipe(), os.pipe()
        self._asking, self._answers = theirs[1], FrameReader(ours[0])
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(theirs[1])
            os.close(ours[0])
            linux.die_with_parent(parent)
            self._serve(theirs[0], ours[1])  # never returns
        os.close(theirs[0])
        os.close(ours[1])
        self._ask()
        return self

    def __exit__(self, *exc: object) -> None:
        os.close(self._asking)
        with suppress(ProcessLookupError):
            os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)
        for fd in (self._answers.fd, *self._memory):
            os.close(fd)

    def idle(self) -> bool:
        """Return whether the next case is built, so that the process only waits."""
        return linux.readable(self._answers.fd)

    def take(self) -> CheckCase | None:
        """Return the next case, or None after the last one. The process then begins to build the
        case after it.

        Raise WorkloadError if the workload cannot be checked, RuntimeError if a bug of this program
        prevented a case, and MemoryError if the process was killed.
        """
        frame = self._answers.read_frame()
        if frame is None:
            raise MemoryError("the process that builds cases was ended")
        raise_refusal(frame.document)
        if "bug" in frame.document:
            raise RuntimeError(f"a case could not be built:\n{frame.document['bug']}")
        if not frame.blob:
            return None
        self._cases_taken += 1
        places = frame.document["places"]
        fd = self._memory[self._cases_taken % _SLOTS]
        size = max((at + length for at, length in places), default=0)
        shared = memoryview(mmap.mmap(fd, size, prot=mmap.PROT_READ) if size else b"")
        buffers = [shared[at : at + length] for at, length in places]
        case: CheckCase = pickle.loads(frame.blob, buffers=buffers)
        self._ask()
        return case

    def _ask(self) -> None:
        with suppress(BrokenPipeError):  # if the process has ended, its last frame has the reason
            os.write(self._asking, b".")

    def _serve(self, requests: int, answers: int) -> None:
        done = False
        try:
            linux.keep_freed_memory()
            cases = self._cases()
            number = 0
            while os.read(requests, 1):
                number += 1
                case = next(cases, None)
                frame = Frame({}) if case is None else _stored(case, self._memory[number % _SLOTS])
                write_frame(answers, frame)
            done = True
        except WorkloadError as error:
            write_frame(answers, refusal(error))
            done = True
        finally:
            if not done:
                with suppress(BrokenPipeError):
                    write_frame(answers, Frame({"bug": traceback.format_exc()}))
            os._exit(0)


def _stored(case: CheckCase, memory: int) -> Frame:
    """Write the arrays of `case` to the file descriptor `memory`. Return a frame with the rest of
    the case."""
    arrays: list[pickle.PickleBuffer] = []
    blob = pickle.dumps(case, protocol=5, buffer_callback=arrays.append)
    places, at = [], 0
    for array in arrays:
        data = array.raw()
        places.append([at, data.nbytes])
        written = 0
        while written < data.nbytes:
            written += os.pwrite(memory, data[written:], at + written)
        at += -(-data.nbytes // _ALIGN_BYTES) * _ALIGN_BYTES
    return Frame({"places": places}, blob)
