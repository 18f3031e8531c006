"""The program of compile workers: it loads LLVM once, and forks a worker for each order.

LLVM may run forever, use all memory or abort. Therefore it runs in processes that can be replaced
(see `fork_server`, the other end).
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.record import MeasureStatus

from ..process.frames import Frame, FrameReader, write_frame
from ..process.serving import MEMORY_BYTES, end_with, limit_memory

DEFAULT_COMPILER = "tilewright.tuner.compiling.requests:compile_document"

_ORDER_BYTES = 1 << 16
_GARBAGE_THRESHOLD = 100_000
"""Objects between two searches for garbage in cycles. A candidate makes some thousands that live
until it is compiled, and searching them after every 700 costs a twentieth of its time in Python."""


def _answer(compiler: Any, document: dict[str, Any]) -> Frame:
    try:
        kernel = compiler(document)
    except ScheduleError as error:
        return Frame({"status": MeasureStatus.NOT_LEGAL, "detail": str(error)})
    except MemoryError:
        detail = f"the compiler needed more than {MEMORY_BYTES >> 20} MiB"
        return Frame({"status": MeasureStatus.COMPILE_ERROR, "detail": detail})
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise  # RecursionError and NotImplementedError are bugs
        # The only exception type of llvmlite, for text that LLVM does not parse or verify.
        lines = str(error).strip().splitlines()
        detail = "LLVM refuses the module: " + " ".join(lines[:3])
        return Frame({"status": MeasureStatus.COMPILE_ERROR, "detail": detail})
    document = {
        "status": MeasureStatus.OK,
        "symbol": kernel.symbol,
        "workspace_bytes": kernel.workspace_bytes,
        "threads": kernel.threads,
        "constants": kernel.constants,
        "packed_bytes": kernel.packed_bytes,
        "prepacked_workspace_bytes": kernel.prepacked_workspace_bytes,
    }
    return Frame(document, kernel.object_bytes)


def _timed_answer(compiler: Any, document: dict[str, Any]) -> Frame:
    start = time.perf_counter()
    answer = _answer(compiler, document)
    answer.document["secs"] = time.perf_counter() - start
    return answer


def _warm(compiler_name: str) -> Any:
    """Import the module of the compile function, initialise LLVM, and return the function."""
    module_name, _, function = compiler_name.partition(":")
    module = import_module(module_name)
    warm_up = getattr(module, "warm_up", None)
    if warm_up is not None:
        warm_up()
    return getattr(module, function)


def _serve(compiler: Any, requests: int, answers: int) -> None:
    """Be a worker: read requests from `requests` and write object files to `answers`."""
    threading.Thread(target=end_with, args=(requests,), daemon=True).start()
    reader = FrameReader(requests)
    while (frame := reader.read_frame()) is not None:
        write_frame(answers, _timed_answer(compiler, frame.document))


def _be_worker(
    compiler_name: str, cpus: Sequence[int], requests: int, answers: int, errors: int
) -> NoReturn:
    """Be a worker on `cpus` until there are no more requests, and end the process.

    Empty `cpus` mean any CPU.
    """
    done = False
    try:
        os.dup2(errors, 2)
        if cpus:
            os.sched_setaffinity(0, cpus)
        _serve(_warm(compiler_name), requests, answers)
        done = True
    finally:
        if not done:
            write_frame(answers, Frame({"bug": traceback.format_exc()}))
        os._exit(0 if done else 1)


def main(arguments: list[str]) -> None:
    """Fork workers. The arguments are COMPILER CONTROL.

    CONTROL is a socket that receives orders. The order "fork CPU ..." comes with the descriptors of
    the worker's requests, answers and standard error, and its answer is the worker's process
    number. The answer of "wait PID" is the exit code of a worker.
    """
    compiler_name, control_fd = arguments
    control = socket.socket(fileno=int(control_fd))
    limit_memory()
    gc.disable()
    with suppress(Exception):  # a worker fails in the same way and reports it
        _warm(compiler_name)
    gc.freeze()  # modules are never garbage, and forks share their pages
    gc.enable()
    gc.set_threshold(_GARBAGE_THRESHOLD)
    while True:
        text, descriptors, _, _ = socket.recv_fds(control, _ORDER_BYTES, 3)
        if not text:
            return
        order, *numbers = text.decode().split()
        if order == "wait":
            _, status = os.waitpid(int(numbers[0]), 0)
            control.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            control.close()
            _be_worker(compiler_name, [int(cpu) for cpu in numbers], *descriptors)
        for fd in descriptors:
            os.close(fd)
        control.send(str(pid).encode())


if __name__ == "__main__":
    main(sys.argv[1:])
