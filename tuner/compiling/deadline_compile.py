"""Compilation outside a search, with deadlines. A helper process compiles if LLVM may end the
process.

LLVM ends its process for CPUs that cannot run the requested code, for features that contradict each
other, and in other cases that are not documented. Therefore this process compiles only short code,
and only for this machine or a level of x86-64. The helper process compiles all other code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.schedules.target import Target

from ..emit.emitted import build_object
from ..emit.object_code import emit_assembly, emit_object, host_names
from ..isa.instruction_set import instructions
from ..machine import x86_levels
from ..machine.llvm_names import check_target
from ..process.frames import Frame
from .helper_process import CompileError, shared_helper

MAX_INLINE_LINES = 16_000
"""The greatest number of lines of LLVM IR that this process compiles. They take a second or two.
Starting the helper takes half a second."""


def emit_by_deadline(ir_text: str, target: Target) -> bytes:
    """Return the object code of `ir_text`, with the same bytes as `emit_object`.

    Raise DeadlineError if it takes too long, and CompileError or TargetError if it fails.
    """
    if _compiles_here(_lines(ir_text), target):
        return emit_object(ir_text, target)
    return _in_helper(ir_text, target, asm=False)


def assembly_by_deadline(ir_text: str, target: Target) -> str:
    """Return the assembly of `ir_text`, with the same text as `emit_assembly`.

    Raise DeadlineError if it takes too long, and CompileError or TargetError if it fails.
    """
    if _compiles_here(_lines(ir_text), target):
        return emit_assembly(ir_text, target)
    return _in_helper(ir_text, target, asm=True).decode()


def build_by_deadline(document: dict[str, Any]) -> tuple[bytes, list[tuple[str, ...]]]:
    """Return the result of `emit.emitted.build_object`: object code, and the features of each
    variant.

    Raise DeadlineError if it takes too long, and CompileError or TargetError if it fails.
    """
    lines = sum(_lines(part["text"]) for part in document["parts"])
    targets = [Target.from_json(part["target"]) for part in document["parts"]]
    if all(_compiles_here(lines, target) for target in targets):
        return build_object(document)
    what = f"compiling {lines} lines of LLVM IR"
    frame = _call_helper("tilewright.tuner.compiling.requests:build_parts", document, what, targets)
    return frame.blob, [tuple(needs) for needs in frame.document["needs"]]


def is_well_known(target: Target) -> bool:
    """Return whether LLVM certainly compiles for `target`: this machine or a level of x86-64, or
    one of these with fewer features."""
    return x86_levels.is_well_known(target, *host_names())


def missing_features(target: Target) -> str:
    """Return what this machine lacks to run code for `target`: the triple, or features separated by
    spaces. Return "" if the code runs here."""
    triple, _, features = host_names()
    if target.architecture != triple.partition("-")[0]:
        return target.triple
    return " ".join(sorted(instructions(target) - features))


def _compiles_here(lines: int, target: Target) -> bool:
    return lines <= MAX_INLINE_LINES and is_well_known(target)


def _lines(ir_text: str) -> int:
    return ir_text.count("\n")


def _in_helper(ir_text: str, target: Target, *, asm: bool) -> bytes:
    document = {"text": ir_text, "target": target.to_json(), "asm": asm}
    what = f"compiling {_lines(ir_text)} lines of LLVM IR"
    return _call_helper(
        "tilewright.tuner.compiling.requests:compile_text", document, what, [target]
    ).blob


def _call_helper(
    function: str, document: dict[str, Any], what: str, targets: Sequence[Target]
) -> Frame:
    """Return the helper's result. Raise TargetError if the helper ended because LLVM does not
    accept one of `targets`."""
    try:
        return shared_helper().call(function, document, what)
    except CompileError:
        for target in targets:
            check_target(target)
        raise
