"""Compilers that behave in every way a compiler can, chosen by the document's "do"."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from tilewright.schedules.errors import ScheduleError
from tilewright.tuner.emit.kernel import CompiledKernel


def compile_fake(document: dict[str, Any]) -> CompiledKernel:
    match document["do"]:
        case "refuse":
            raise ScheduleError("Split(axis='i', factor=0)", "factor must be 2..9, got 0")
        case "bad text":
            from llvmlite import binding as llvm

            llvm.parse_assembly("define nonsense")
        case "abort":
            os.abort()
        case "exit":
            os.write(2, b"LLVM ERROR: out of registers\n")
            os._exit(1)
        case "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1000)
        case "balloon":
            return CompiledKernel(bytes(8 << 30), "kernel", 0, (), 0, 1, False)
        case "bug":
            return CompiledKernel(**document)
    return CompiledKernel(str(os.getpid()).encode(), "kernel", 64, (4, 4), 1, 1, False)


def compile_never(document: dict[str, Any]) -> CompiledKernel:
    """A compiler that does not end, whatever it is given."""
    time.sleep(1000)
    return compile_fake({**document, "do": "compile"})
