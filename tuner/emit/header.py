"""The C header of an emitted kernel. It states all facts that callers need, without dates or
paths."""

from __future__ import annotations

import re

from tilewright.schedules.rewritten import rewritten_document
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload

from ..codegen.abi import prepack_symbol, prepacked_symbol, supported_symbol, variant_symbol
from ..codegen.version import EMIT_VERSION
from ..isa.x86 import essential
from .c_names import KEYWORDS, RESERVED
from .dispatch import NOT_SUPPORTED
from .emitted import BuiltVariant, EmittedKernel
from .object_code import toolchain

_OURS = frozenset({"workspace", "packed"})
_MACROS = re.compile(
    r"NULL|EOF|BUFSIZ|RAND_MAX|errno|std(in|out|err)|[A-Z0-9_]+_(MAX|MIN|C)|M_[A-Z0-9_]+"
    r"|I|complex|imaginary|noreturn|linux|unix|i386"
)
"""Macros that would break a prototype. Standard headers define them, or compilers in usual
modes."""


def c_header(workload: Workload, kernel: EmittedKernel) -> str:
    """Return the header of `kernel`, which is valid in C99 and C++. The same arguments give the
    same text.

    It states the types, the shapes, the required CPU features, the origin of each variant and the
    error of its rewrites.
    """
    guard = f"TILEWRIGHT_{re.sub(r'[^A-Z0-9]', '_', kernel.symbol.upper())}_H"
    names = argument_names(workload)
    inputs = set(workload.inputs)
    parameters = [
        f"{'const ' if tensor in inputs else ''}{tensor.dtype.c} *{name}"
        for tensor, name in zip(workload.arguments, names, strict=True)
    ]
    made_by = toolchain()
    title = _harmless(workload.name) or "a tensor expression"
    lines = [
        f"/* {kernel.symbol}: {title}, made by Tilewright.",
        " *",
        *(
            f" * {name:<12} {'in ' if tensor in inputs else 'out'} {_described(tensor)}"
            f"{' constant' if tensor.constant else ''}"
            for tensor, name in zip(workload.arguments, names, strict=True)
        ),
        " *",
        " * Tensors are dense, row-major, aligned to their element, and do not overlap.",
        " * Fastest where they are aligned to 64 bytes, which is how they were timed.",
        f" * workspace: {kernel.workspace_bytes} bytes, aligned to 64"
        + (" (may be NULL)." if kernel.workspace_bytes == 0 else "."),
        f" * Threads: up to {kernel.threads}"
        + (", on OpenMP's runtime (link with -fopenmp)." if kernel.uses_openmp else "."),
        " * Re-entrant: calls at the same time need workspaces of their own.",
        " *",
        *_cpu_lines(workload, kernel),
        f" * workload: {workload.key}",
        f" * object sha256: {kernel.object_sha256}",
        f" * codegen {made_by.codegen_version}.{EMIT_VERSION}, llvmlite {made_by.llvmlite},"
        f" LLVM {made_by.llvm}",
        " */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        "/* Bytes the workspace must have. */",
        f"size_t {kernel.symbol}_workspace_bytes(void);",
        "",
        "/* 1 if this CPU can run the kernel, 0 if it cannot. */",
        f"int {supported_symbol(kernel.symbol)}(void);",
        "",
        '/* The CPU whose code runs here, as named above; "none" if there is none. */',
        f"const char *{variant_symbol(kernel.symbol)}(void);",
        "",
        "/* 0; 1 if the workspace is missing or not aligned to 64 bytes;",
        f"   {NOT_SUPPORTED} if this CPU cannot run the kernel. */",
        f"int {kernel.symbol}({', '.join(parameters)}, void *workspace);",
        "",
        *(_prepack_lines(kernel, parameters) if kernel.constants else ()),
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _cpu_lines(workload: Workload, kernel: EmittedKernel) -> list[str]:
    """Return comment lines with the CPU features and the origin of each variant."""
    triple = _harmless(kernel.triple)
    if len(kernel.variants) == 1:
        lines = [f" * CPU: {_harmless(kernel.variants[0].label)} ({triple})"]
    else:
        lines = [f" * CPU: the first of these that the CPU can run ({triple})"]
    for variant in kernel.variants:
        if len(kernel.variants) > 1:
            lines.append(f" * {_harmless(variant.label)}")
        lines += _wrapped(" * needs: ", _needs(variant))
        if not variant.checked and variant.needs:
            lines.append(" * which the object cannot check: a CPU without them stops it")
        record = _harmless(variant.record_key) or "none, the schedule chosen without measuring"
        lines += [f" * record: {record}", *_rewritten_lines(workload, variant.trace)]
    return lines


def _needs(variant: BuiltVariant) -> list[str]:
    if not variant.needs:
        return ["nothing beyond the architecture"]
    names = essential(variant.needs) if variant.checked else variant.needs
    return [_harmless(name) for name in names]


def _rewritten_lines(workload: Workload, trace: Trace) -> list[str]:
    """Return comment lines with the rewrites that reduce accuracy, and their proven error."""
    found = rewritten_document(workload, trace, None)
    if found is None:
        return []
    return [
        *(f" * rewritten: {_harmless(step)}" for step in found["steps"]),
        f" * error: at most {found['error_stated']:.2g} of max|data| * sum|weight|"
        f" (allowed: {found['error_allowed']:g})",
    ]


def _prepack_lines(kernel: EmittedKernel, parameters: list[str]) -> list[str]:
    """Return the declarations of the functions that pack constant inputs, or that compute from
    packed inputs."""
    constants = [parameters[n] for n in kernel.constants]
    others = [p for n, p in enumerate(parameters) if n not in kernel.constants]
    packed, workspace = kernel.packed_bytes, kernel.prepacked_workspace_bytes
    return [
        "/* Constant inputs can be packed once, ahead of all calls: into memory of",
        f" * {kernel.symbol}_packed_bytes() bytes ({packed}), aligned to 64"
        + (" (may be NULL)," if packed == 0 else ","),
        " * which any number of calls at the same time may then share; the inputs themselves are",
        " * not needed any more. */",
        f"size_t {kernel.symbol}_packed_bytes(void);",
        "",
        "/* 0; 1 if the packed memory is missing or not aligned to 64 bytes; 2 as above. */",
        f"int {prepack_symbol(kernel.symbol)}({', '.join(constants)}, void *packed);",
        "",
        f"/* Bytes of workspace {prepacked_symbol(kernel.symbol)} must have ({workspace}). */",
        f"size_t {prepacked_symbol(kernel.symbol)}_workspace_bytes(void);",
        "",
        f"/* What {kernel.symbol} computes, from what {prepack_symbol(kernel.symbol)} packed. 0; 1"
        " or 2 as above. */",
        f"int {prepacked_symbol(kernel.symbol)}({', '.join(others)}, const void *packed,"
        " void *workspace);",
        "",
    ]


def argument_names(workload: Workload) -> tuple[str, ...]:
    """Return a C identifier for each argument. It is the tensor's name if that is valid and no
    other argument has it."""
    taken: set[str] = set()
    names: list[str] = []
    for tensor in workload.arguments:
        name = re.sub(r"\W", "_", tensor.name, flags=re.ASCII) or "t"
        if _is_taken_by_c(name):
            name = f"t_{re.sub('_+', '_', name).strip('_')}"
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
    return tuple(names)


def _is_taken_by_c(name: str) -> bool:
    """Return whether a parameter cannot have this name in C. Names of functions are allowed."""
    return (
        name[0].isdigit()
        or name in KEYWORDS
        or name in _OURS
        or RESERVED.fullmatch(name) is not None
        or _MACROS.fullmatch(name) is not None
    )


def _harmless(text: str) -> str:
    """Return a user's text on one line, without delimiters of C comments."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return line.replace("*/", "* /").replace("/*", "/ *")


def _described(tensor: Tensor) -> str:
    kind = f"{tensor.dtype} bits" if tensor.dtype.is_narrow_float else tensor.dtype.value
    return f"{kind}[{', '.join(map(str, tensor.shape))}]"


def _wrapped(start: str, words: list[str]) -> list[str]:
    """Return `start` and `words` on several comment lines of at most 96 columns."""
    lines = [start]
    for word in words:
        if len(lines[-1]) + len(word) > 96:
            lines.append(" *        ")
        lines[-1] += f"{word} "
    return [line.rstrip() for line in lines]
