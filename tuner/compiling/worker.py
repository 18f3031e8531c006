"""The program of a compile worker: requests on standard input, object files on standard output.

LLVM may run forever, use all memory or abort. Therefore it runs in a process that can be replaced.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import traceback
from functools import partial
from importlib import import_module
from typing import Any

from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.record import MeasureStatus

from ..process.frames import Frame, FrameReader, write_frame
from ..process.linux import process_age_secs
from ..process.serving import MEMORY_BYTES, end_with, limit_memory, take_over_pipes
from .spare import SpareEnds, fork_spare

DEFAULT_COMPILER = "tilewright.tuner.compiling.requests:compile_document"


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
    start_secs = process_age_secs()
    reader = FrameReader(requests)
    while (frame := reader.read_frame()) is not None:
        answer = _timed_answer(compiler, frame.document)
        answer.document["start_secs"] = start_secs
        write_frame(answers, answer)


def main(arguments: list[str]) -> None:
    """Run a compile worker. Its arguments are COMPILER [CPU,CPU,... [REQUESTS,ANSWERS ...]].

    Each REQUESTS,ANSWERS is a pair of pipes of a spare (see `spare`).
    """
    requests, answers = take_over_pipes()
    limit_memory()
    done = False
    try:
        gc.disable()
        compiler = _warm(arguments[0])
        gc.freeze()  # modules are never garbage, and forks share their pages
        gc.enable()
        for ends in map(SpareEnds.parse, arguments[2:]):
            if fork_spare(ends, partial(_timed_answer, compiler), unused=(requests, answers)):
                os._exit(0)
        threading.Thread(target=end_with, args=(requests,), daemon=True).start()
        if len(arguments) > 1 and arguments[1]:
            os.sched_setaffinity(0, {int(cpu) for cpu in arguments[1].split(",")})
        _serve(compiler, requests, answers)
        done = True
    finally:
        if not done:
            write_frame(answers, Frame({"bug": traceback.format_exc()}))


if __name__ == "__main__":
    main(sys.argv[1:])
