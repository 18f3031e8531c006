"""The program of a compile worker: requests on standard input, object files on standard output.

LLVM may run for ever, eat memory or abort; it does so here, in a process that can be replaced.
"""

from __future__ import annotations

import os
import resource
import select
import sys
import threading
import time
import traceback
from importlib import import_module
from typing import Any

from schedules.errors import ScheduleError
from schedules.record import MeasureStatus
from schedules.target import Target
from schedules.trace import Trace

from ..process import linux
from ..process.frames import Frame, FrameReader, write_frame

DEFAULT_COMPILER = "tuner.compiling.worker:compile_document"
_MEMORY_BYTES = 4 << 30


def compile_document(document: dict[str, Any]) -> Any:
    """The `CompiledKernel` of workload, trace and target as JSON. ScheduleError: not legal."""
    from schedules.workload.workload import Workload
    from tuner.emit.kernel import compile_kernel

    return compile_kernel(
        Workload.from_json(document["workload"]),
        Trace.from_json(document["trace"]),
        Target.from_json(document["target"]),
    )


def _answer(compiler: Any, document: dict[str, Any]) -> Frame:
    try:
        kernel = compiler(document)
    except ScheduleError as error:
        return Frame({"status": MeasureStatus.NOT_LEGAL, "detail": str(error)})
    except MemoryError:
        detail = f"the compiler needed more than {_MEMORY_BYTES >> 20} MiB"
        return Frame({"status": MeasureStatus.COMPILE_ERROR, "detail": detail})
    except RuntimeError as error:
        if type(error) is not RuntimeError:
            raise  # RecursionError, NotImplementedError: ours
        # The one exception llvmlite has, for text that LLVM does not parse or verify.
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


def end_with(lifeline: int) -> None:
    """End this process when nobody can send it work any more, even in the midst of a compile."""
    poller = select.poll()
    poller.register(lifeline, 0)
    poller.poll()
    os._exit(1)


def take_over_pipes() -> tuple[int, int]:
    """Descriptors to read requests from and to write answers to; 0 and 1 lead nowhere now."""
    requests, answers = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    return requests, answers


def limit_memory() -> None:
    """Let this process take `_MEMORY_BYTES` more, or what whoever started it was left, and leave no
    image of itself when it crashes."""
    linux.limit_address_space(linux.address_space_bytes() + _MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _serve(compiler_name: str, requests: int, answers: int) -> None:
    module, _, function = compiler_name.partition(":")
    compiler = getattr(import_module(module), function)
    if compiler_name == DEFAULT_COMPILER:
        _warm_up()
    reader = FrameReader(requests)
    while (frame := reader.read_frame()) is not None:
        start = time.perf_counter()
        answer = _answer(compiler, frame.document)
        answer.document["secs"] = time.perf_counter() - start
        write_frame(answers, answer)


def _warm_up() -> None:
    """Pay for imports and for LLVM's first use before the first candidate is waiting."""
    import_module("tuner.emit.kernel")
    from ..loading.native import host_target_machine

    host_target_machine()


def main(arguments: list[str]) -> None:
    """`python -m tuner.compiling.worker COMPILER [CPU,CPU,...]`"""
    requests, answers = take_over_pipes()
    threading.Thread(target=end_with, args=(requests,), daemon=True).start()
    limit_memory()
    if len(arguments) > 1 and arguments[1]:
        os.sched_setaffinity(0, {int(cpu) for cpu in arguments[1].split(",")})
    done = False
    try:
        _serve(arguments[0], requests, answers)
        done = True
    finally:
        if not done:
            write_frame(answers, Frame({"bug": traceback.format_exc()}))


if __name__ == "__main__":
    main(sys.argv[1:])
