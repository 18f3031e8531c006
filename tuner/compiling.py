"""Compiling where somebody waits, outside of a search: what may take long has a deadline."""

from __future__ import annotations

from typing import Any

from schedules.target import Target

from .codegen.emit import emit_assembly, emit_object
from .codegen.emitted import build_object
from .measure.aside import shared

MOST_LINES_HERE = 16_000
"""Lines of LLVM IR up to which a module is compiled in this process: that takes a second or two,
and a process of its own half a second more."""


def emit_in_time(ir_text: str, target: Target) -> bytes:
    """Object code, the same bytes as `emit_object` gives. DeadlineError, CompileError."""
    if ir_text.count("\n") <= MOST_LINES_HERE:
        return emit_object(ir_text, target)
    return _aside(ir_text, target, asm=False)


def assembly_in_time(ir_text: str, target: Target) -> str:
    """Assembly, the same text as `emit_assembly` gives. DeadlineError, CompileError."""
    if ir_text.count("\n") <= MOST_LINES_HERE:
        return emit_assembly(ir_text, target)
    return _aside(ir_text, target, asm=True).decode()


def build_in_time(document: dict[str, Any]) -> tuple[bytes, list[tuple[str, ...]]]:
    """What `codegen.emitted.build_object` gives. DeadlineError, CompileError."""
    lines = sum(part["text"].count("\n") for part in document["parts"])
    if lines <= MOST_LINES_HERE:
        return build_object(document)
    what = f"compiling {lines} lines of LLVM IR"
    frame = shared().call("tuner.measure.aside:build_parts", document, what)
    return frame.blob, [tuple(needs) for needs in frame.document["needs"]]


def _aside(ir_text: str, target: Target, *, asm: bool) -> bytes:
    document = {"text": ir_text, "target": target.to_json(), "asm": asm}
    what = f"compiling {ir_text.count(chr(10))} lines of LLVM IR"
    return shared().call("tuner.measure.aside:compile_text", document, what).blob
