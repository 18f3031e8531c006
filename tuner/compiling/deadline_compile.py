"""Compiling outside of a search, where a caller waits: long compiles have a deadline, and dangerous
ones happen in a helper process.

LLVM ends its process for CPUs that cannot run the requested code, for features that contradict each
other and for some others, without a list of them. So this process compiles only for this machine or
for a level of x86-64; everything else is compiled in the helper.
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
"""Longer LLVM IR is compiled in the helper. This many lines take a second or two; starting the
helper takes half a second."""


def emit_by_deadline(ir_text: str, target: Target) -> bytes:
    """Object code, the same bytes as `emit_object`. DeadlineError, CompileError,
    TargetError."""
    if _compiles_here(_lines(ir_text), target):
        return emit_object(ir_text, target)
    return _in_helper(ir_text, target, asm=False)


def assembly_by_deadline(ir_text: str, target: Target) -> str:
    """Assembly, the same text as `emit_assembly`. DeadlineError, CompileError,
    TargetError."""
    if _compiles_here(_lines(ir_text), target):
        return emit_assembly(ir_text, target)
    return _in_helper(ir_text, target, asm=True).decode()


def build_by_deadline(document: dict[str, Any]) -> tuple[bytes, list[tuple[str, ...]]]:
    """The result of `emit.emitted.build_object`. DeadlineError, CompileError, TargetError."""
    lines = sum(_lines(part["text"]) for part in document["parts"])
    targets = [Target.from_json(part["target"]) for part in document["parts"]]
    if all(_compiles_here(lines, target) for target in targets):
        return build_object(document)
    what = f"compiling {lines} lines of LLVM IR"
    frame = _call_helper("tilewright.tuner.compiling.requests:build_parts", document, what, targets)
    return frame.blob, [tuple(needs) for needs in frame.document["needs"]]


def is_well_known(target: Target) -> bool:
    """Whether LLVM certainly compiles for it: this machine, a subset of its features, or a level of
    x86-64."""
    return x86_levels.is_well_known(target, *host_names())


def missing_features(target: Target) -> str:
    """The features of `target` that this machine lacks, or its triple; "" if code for it runs
    here."""
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
    """The helper's result. TargetError if the target's description ended the helper, as no other
    schedule would help."""
    try:
        return shared_helper().call(function, document, what)
    except CompileError:
        for target in targets:
            check_target(target)
        raise
