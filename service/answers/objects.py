"""What a schedule becomes: text to read, and files a C program links.

Same workload, trace, target and name in, same bytes out: nothing here reads a clock or a path.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schedules.target import Target
from schedules.trace import Trace
from schedules.workload import Workload
from service.answers.grades import Answer
from service.errors import UsageProblem

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_C_KEYWORDS = frozenset(
    """auto break case char const continue default do double else enum extern float for goto if
    inline int long main register restrict return short signed sizeof static struct switch typedef
    union unsigned void volatile while""".split()  # noqa: SIM905  # words are easier to read
)


@dataclass(frozen=True, slots=True)
class Artefact:
    """One file: `kind` is "object", "header", "llvm" or "asm"."""

    kind: str
    name: str
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def symbol_name(asked: str | None, workload: Workload) -> str:
    """The C name: as asked, or made from the workload's name. UsageProblem if it is no C name."""
    if asked is None:
        words = re.sub(r"[^A-Za-z0-9_]+", "_", workload.name.split(":")[0]).strip("_")
        stem = words[:50].rstrip("_") or "kernel"
        return stem if _is_c_name(stem) else f"kernel_{stem}"
    if not _is_c_name(asked):
        raise UsageProblem(f"--name {asked!r}: a C function name of at most 63 characters will do")
    return asked


def _is_c_name(text: str) -> bool:
    return _IDENTIFIER.fullmatch(text) is not None and text not in _C_KEYWORDS


def shown(workload: Workload, trace: Trace, target: Target, what: str) -> str:
    """The schedule as text; `what` is one of `show --what`."""
    match what:
        case "trace":
            return trace_text(trace)
        case "nest":
            return _nest_text(workload, trace)
        case "before-after":
            return (
                "// before: the expression as it stands\n"
                + _nest_text(workload, Trace())
                + "\n// after: the schedule chosen\n"
                + _nest_text(workload, trace)
            )
        case "llvm":
            from tuner.codegen.kernel import llvm_text

            return llvm_text(workload, trace, target, symbol_name(None, workload))
        case "asm":
            from tuner.codegen.kernel import llvm_text
            from tuner.compiling import assembly_in_time

            text = llvm_text(workload, trace, target, symbol_name(None, workload))
            return assembly_in_time(text, target)
        case _:
            raise UsageProblem(f"--what {what!r}: trace, nest, before-after, llvm or asm will do")


def trace_text(trace: Trace) -> str:
    """One primitive a line."""
    return "\n".join(str(step) for step in trace.steps) or "(no steps: the expression as it stands)"


def _nest_text(workload: Workload, trace: Trace) -> str:
    from schedules.lower import lower, start
    from schedules.printer import to_text
    from schedules.readable import named_like, readable

    nest = lower(workload, trace)
    if trace.rewrites:
        workload = named_like(start(workload, trace)[0], workload)
    return to_text(readable(nest, workload))


def build(
    workload: Workload, answer: Answer, target: Target, symbol: str, *, ll: bool, asm: bool
) -> list[Artefact]:
    """The object, its header and what else was asked for. DeadlineError, CompileError."""
    from tuner.codegen.header import c_header
    from tuner.codegen.kernel import compile_kernel, llvm_text
    from tuner.compiling import assembly_in_time, emit_in_time

    kernel = compile_kernel(workload, answer.trace, target, symbol, emit=emit_in_time)
    key = answer.record_key or ""
    header = c_header(workload, kernel, target, record_key=key, trace=answer.trace)
    files = [
        Artefact("object", f"{symbol}.o", kernel.object_bytes),
        Artefact("header", f"{symbol}.h", header.encode()),
    ]
    if ll:
        text = llvm_text(workload, answer.trace, target, symbol)
        files.append(Artefact("llvm", f"{symbol}.ll", text.encode()))
    if asm:
        text = llvm_text(workload, answer.trace, target, symbol)
        files.append(Artefact("asm", f"{symbol}.s", assembly_in_time(text, target).encode()))
    return files


def write(files: list[Artefact], folder: Path) -> list[dict[str, Any]]:
    """Write each file whole or not at all; what was written, for `--json`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            _replace(folder / file.name, file.data)
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


def _replace(path: Path, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
