"""A schedule as text to read, and as files that a C program links.

Equal workload, trace, target and name give equal bytes: this module reads neither a clock nor a
path.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.schedules.lowering.outline import plan_text
from tilewright.schedules.lowering.readable import readable
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers.grades import Answer
from tilewright.service.atomic_files import write_atomically
from tilewright.service.errors import UsageProblem
from tilewright.tuner.emit.c_names import name_problem
from tilewright.tuner.emit.variant import Variant

if TYPE_CHECKING:
    from tilewright.tuner.emit.emitted import Build, EmittedKernel

# Start-up: a query loads neither SQLAlchemy nor a compiler; functions that need them import them.


@dataclass(frozen=True, slots=True)
class BuiltFile:
    """One file: `kind` is "object", "header", "llvm" or "asm"."""

    kind: str
    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def symbol_name(requested: str | None, workload: Workload) -> str:
    """Return the C name: as requested, or derived from the workload's name. Raise UsageProblem for
    a name that C, C++ or the C library reserves."""
    if requested is None:
        words = re.sub(r"[^A-Za-z0-9_]+", "_", workload.name.split(":")[0]).strip("_")
        stem = words[:50].rstrip("_") or "kernel"
        return f"kernel_{stem.replace('__', '_').lstrip('_')}" if name_problem(stem) else stem
    reason = name_problem(requested)
    if reason:
        stem = re.sub(r"[^A-Za-z0-9]+", "_", requested).strip("_")[:40] or "kernel"
        raise UsageProblem(
            f"{requested!r} cannot be the name of a kernel's C function: {reason}",
            code="bad_name",
            advice=f"Choose another, such as tw_{stem}.",
        )
    return requested


def shown(workload: Workload, trace: Trace, target: Target, what: str) -> str:
    """Return the schedule as text. `what` is a value of `show --what`."""
    match what:
        case "trace":
            return trace_text(trace)
        case "plan":
            return plan_text(workload, trace)
        case "nest":
            return _nest_text(workload, trace)
        case "before-after":
            return (
                "// before: the untransformed expression\n"
                + _nest_text(workload, Trace())
                + "\n// after: the schedule chosen\n"
                + _nest_text(workload, trace)
            )
        case "llvm":
            from tilewright.tuner.emit.kernel import llvm_text

            return llvm_text(workload, trace, target, symbol_name(None, workload))
        case "asm":
            from tilewright.tuner.compiling.deadline_compile import assembly_by_deadline
            from tilewright.tuner.emit.kernel import llvm_text

            text = llvm_text(workload, trace, target, symbol_name(None, workload))
            return assembly_by_deadline(text, target)
        case _:
            raise UsageProblem(
                f"--what {what!r}: must be trace, plan, nest, before-after, llvm or asm"
            )


def trace_text(trace: Trace) -> str:
    """Return the schedule as text, one primitive per line."""
    return (
        "\n".join(str(step) for step in trace.steps) or "(no steps: the untransformed expression)"
    )


def _nest_text(workload: Workload, trace: Trace) -> str:
    return to_text(readable(workload, trace).nest)


def variant_of(answer: Answer, target: Target) -> Variant:
    return Variant(target.cpu, answer.trace, target, answer.record_key or "")


def build(
    workload: Workload, variant: Variant, symbol: str, *, ll: bool, asm: bool
) -> list[BuiltFile]:
    """Return the object, its header and the other requested files. Raise DeadlineError or
    CompileError."""
    _, files = emitted(workload, [variant], symbol)
    return [*files, *texts(workload, variant, symbol, ll=ll, asm=asm)]


def emitted(
    workload: Workload, variants: Sequence[Variant], symbol: str, build: Build | None = None
) -> tuple[EmittedKernel, list[BuiltFile]]:
    """Compile variants, in order of preference, into one object. Return the kernel, and the object
    and its header as files. `build` is the compiler; None means `build_by_deadline`. Raise
    DeadlineError, CompileError or TargetError."""
    from tilewright.tuner.compiling.deadline_compile import build_by_deadline
    from tilewright.tuner.emit.emitted import emit_kernel

    kernel = emit_kernel(workload, variants, symbol, build or build_by_deadline)
    return kernel, kernel_files(workload, kernel)


def kernel_files(workload: Workload, kernel: EmittedKernel) -> list[BuiltFile]:
    """Return the object and its header."""
    from tilewright.tuner.emit.header import c_header

    return [
        BuiltFile("object", f"{kernel.symbol}.o", kernel.object_bytes),
        BuiltFile("header", f"{kernel.symbol}.h", c_header(workload, kernel).encode()),
    ]


def texts(
    workload: Workload, variant: Variant, stem: str, *, ll: bool, asm: bool
) -> list[BuiltFile]:
    """Return one variant as `stem`.ll and `stem`.s, as requested. Raise DeadlineError or
    CompileError."""
    from tilewright.tuner.compiling.deadline_compile import assembly_by_deadline
    from tilewright.tuner.emit.kernel import llvm_text

    if not ll and not asm:
        return []
    files = []
    text = llvm_text(workload, variant.trace, variant.target, stem)
    if ll:
        files.append(BuiltFile("llvm", f"{stem}.ll", text.encode()))
    if asm:
        files.append(
            BuiltFile("asm", f"{stem}.s", assembly_by_deadline(text, variant.target).encode())
        )
    return files


def write(files: list[BuiltFile], folder: Path) -> list[dict[str, Any]]:
    """Write each file atomically; return the list of files for `--json`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            write_atomically(folder / file.name, file.data)
    except OSError as error:
        raise UsageProblem(f"cannot write to {folder}: {error.strerror or error}") from error
    return [
        {
            "kind": file.kind,
            "path": str(folder / file.name),
            "bytes": len(file.data),
            "sha256": file.sha256,
        }
        for file in files
    ]
