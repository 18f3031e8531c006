"""Compilation of a workload, a trace and a target to a kernel's object code."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import Nest
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from ..codegen.abi import Needs
from ..codegen.generate import generate
from ..codegen.module import GeneratedModule
from .object_code import emit_assembly, emit_object

SYMBOL = "kernel"

Emit: TypeAlias = Callable[[str, Target], bytes]
"""A function that compiles LLVM IR text for a target to object code."""


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """The object code of one kernel, and the memory that its callers must provide.

    The function `symbol(in0, ..., out0, ..., workspace)` returns 0 on success. If there are
    constant inputs, the object also has functions that pack them, and that compute from packed
    inputs (see `prepack`).
    """

    object_bytes: bytes
    symbol: str
    workspace_bytes: int
    """The size for up to `threads` threads. It may be 0."""
    argument_bytes: tuple[int, ...]
    """The size of each argument, in the order of the arguments."""
    input_count: int
    threads: int
    uses_openmp: bool
    constants: tuple[int, ...] = ()
    """The positions of constant inputs."""
    packed_bytes: int = 0
    """The size of the packed constant inputs."""
    prepacked_workspace_bytes: int = 0

    @property
    def needs(self) -> Needs:
        """The memory that callers must provide."""
        return Needs(
            self.workspace_bytes, self.constants, self.packed_bytes, self.prepacked_workspace_bytes
        )

    @property
    def object_sha256(self) -> str:
        return hashlib.sha256(self.object_bytes).hexdigest()


def compile_kernel(
    workload: Workload,
    trace: Trace,
    target: Target,
    symbol: str = SYMBOL,
    emit: Emit = emit_object,
) -> CompiledKernel:
    """Return the kernel, compiled by `emit`. The same arguments give the same bytes.

    For a bad schedule, LLVM may be slow or crash. Therefore call this function in a separate
    process, or pass `tilewright.tuner.compiling.deadline_compile.emit_by_deadline`. Raise
    ScheduleError if the trace is not legal.
    """
    return compile_nest(workload, lower(workload, trace), target, symbol, emit)


def compile_nest(
    workload: Workload,
    nest: Nest,
    target: Target,
    symbol: str = SYMBOL,
    emit: Emit = emit_object,
) -> CompiledKernel:
    """Return the kernel of a lowered nest of `workload`; see `compile_kernel`."""
    module = generate(nest, target, symbol)
    return CompiledKernel(
        object_bytes=emit(module.text, target),
        symbol=symbol,
        workspace_bytes=module.workspace_bytes,
        argument_bytes=tuple(t.bytes for t in workload.arguments),
        input_count=len(workload.inputs),
        threads=target.threads if module.uses_openmp else 1,
        uses_openmp=module.uses_openmp,
        constants=tuple(n for n, t in enumerate(workload.inputs) if t.constant),
        packed_bytes=module.packed_bytes,
        prepacked_workspace_bytes=module.prepacked_workspace_bytes,
    )


def generated(
    workload: Workload, trace: Trace, target: Target, symbol: str = SYMBOL
) -> GeneratedModule:
    """Return the kernel's LLVM IR. Raise ScheduleError if the trace is not legal."""
    return generate(lower(workload, trace), target, symbol)


def llvm_text(workload: Workload, trace: Trace, target: Target, symbol: str = SYMBOL) -> str:
    """Return the kernel's LLVM IR as it is generated, before any pass."""
    return generated(workload, trace, target, symbol).text


def assembly_text(workload: Workload, trace: Trace, target: Target, symbol: str = SYMBOL) -> str:
    """Return the kernel's assembly for `target`, which need not be this machine."""
    return emit_assembly(generated(workload, trace, target, symbol).text, target)
