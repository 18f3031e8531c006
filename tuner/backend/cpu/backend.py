"""The CPU back end: LLVM compiles kernels, this process calls them, and OpenMP runs their
threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilewright.schedules.dtypes import DType
from tilewright.schedules.target import ARCHITECTURES, Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from ...codegen.abi import Needs
from ..protocol import Buffers, Clock, Emit, Launch, Loaded
from .loading.entries import Entry, argument_vector, timed_entry, whole_entry
from .loading.loader import load_object, serial_after_fork, use_openmp, wants_openmp
from .loading.native import Helpers, build_helpers
from .memory.flat import flat_buffers

if TYPE_CHECKING:
    from ...emit.kernel import CompiledKernel

# Start-up: importing this module loads no LLVM. Methods that need LLVM import it.


class Cpu:
    """The `Backend` for the CPUs of all `ARCHITECTURES`."""

    name = "cpu"
    checker = "tilewright.tuner.backend.cpu.checker.runner"
    prober = "tilewright.tuner.backend.cpu.probing.prober"

    def makes(self, target: Target) -> bool:
        return target.architecture in ARCHITECTURES

    def detect(self) -> Target:
        from .detect import detect

        return detect()

    def refuse_foreign(self, target: Target) -> None:
        from .detect import refuse_foreign

        refuse_foreign(target)

    def warm_up(self) -> None:
        from ...emit.object_code import host_target_machine

        host_target_machine()

    def generate(
        self, workload: Workload, trace: Trace, target: Target, emit: Emit | None = None
    ) -> CompiledKernel:
        from ...emit.kernel import compile_kernel
        from ...emit.object_code import emit_object

        return compile_kernel(workload, trace, target, emit=emit or emit_object)

    def load(self, code: bytes, symbol: str, needs: Needs, arguments: int) -> Loaded:
        parallel = wants_openmp(code)
        if parallel:
            use_openmp()
        kernel = load_object(code, symbol)
        timed = timed_entry(kernel, symbol, needs, arguments)
        whole = whole_entry(kernel, needs, arguments)
        if parallel:
            timed, whole = _fork_safe(timed), _fork_safe(whole)
        return Loaded(timed=timed, whole=whole)

    def buffers(self, size_bytes: Sequence[int], skip_bytes: int = 0) -> Buffers:
        return flat_buffers(size_bytes, skip_bytes)

    def clock(self, arguments: int, target: Target) -> Clock:
        return _Clock(build_helpers(arguments, target.lanes(DType.F32), fault_page=0), arguments)


def _fork_safe(entry: Entry) -> Entry:
    """Return a copy of `entry` that can also be called in forked children, even after its first
    call in this process."""

    def watched(function: Callable[..., int]) -> Callable[..., int]:
        def call(*pointers: int) -> int:
            serial_after_fork()
            return function(*pointers)

        return call

    prepack = entry.prepack and watched(entry.prepack)
    return replace(entry, call=watched(entry.call), prepack=prepack)


@dataclass(frozen=True)
class _Clock:
    helpers: Helpers
    arguments: int

    def samples(
        self, launch: Launch, pointers: Sequence[int], calls: int, rounds: int
    ) -> NDArray[np.float64]:
        argv = argument_vector(pointers, self.arguments)
        secs, _ = self.helpers.time(launch.address, argv, calls, rounds, 1)
        return secs
