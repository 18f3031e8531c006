"""Finds the hot loop in an assembly listing.

A loop is the code between a label and a jump back to it. The hot loop is the innermost loop with
the most vector arithmetic. The analysis reads text and runs no code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LABEL = re.compile(r"^([.\w$]+):")
_INSTRUCTION = re.compile(r"^\s+([a-z][\w.]*)\s*(.*)$")
_JUMP = re.compile(r"^(j[a-z]+|b(\.\w+)?|cbn?z|tbn?z)$")
_ARITHMETIC = re.compile(
    r"^(v?(fn?m(add|sub)\w*|(add|sub|mul|div|max|min|sqrt|dp)[ps][sdh]\w*|dpb\w+|pdp\w+|pmul\w+|"
    r"padd\w+|pmadd\w+)|fml[as]\w*|f(add|sub|mul|max|min)\w*|[su]dot|[su]mlal?\w*)$"
)


@dataclass(frozen=True, slots=True)
class HotLoop:
    """The loop is in lines `first` to `last` (from 0, inclusive) and has `instructions`
    instructions, of which `arithmetic` are vector arithmetic."""

    first: int
    last: int
    instructions: int
    arithmetic: int


def hot_loop(assembly: str) -> HotLoop | None:
    """Return the hot loop of a listing in LLVM's syntax, or None if there is no loop."""
    lines = assembly.splitlines()
    labels: dict[str, int] = {}
    loops: list[tuple[int, int]] = []
    for number, line in enumerate(lines):
        label = _LABEL.match(line)
        if label:
            labels[label[1]] = number
            continue
        mnemonic, operands = _instruction(line)
        if _JUMP.match(mnemonic):
            target = operands.split("#")[0].split(",")[-1].strip()
            if target in labels:
                loops.append((labels[target], number))
    innermost = [
        loop for loop in loops
        if not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in loops)
    ]  # fmt: skip
    found = [_measured(lines, first, last) for first, last in innermost]
    return max(found, key=lambda loop: (loop.arithmetic, loop.instructions), default=None)


def _measured(lines: list[str], first: int, last: int) -> HotLoop:
    names = [_instruction(line)[0] for line in lines[first : last + 1]]
    used = [name for name in names if name]
    return HotLoop(first, last, len(used), sum(bool(_ARITHMETIC.match(name)) for name in used))


def _instruction(line: str) -> tuple[str, str]:
    """Return the mnemonic and operands; empty for directives, comments and labels."""
    match = _INSTRUCTION.match(line)
    return (match[1], match[2]) if match else ("", "")
