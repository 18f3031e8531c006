"""An order of statements in which their long dependence chains overlap (software pipelining).

A math function is a chain of dependent instructions that is longer than a core's reorder window, so
copies of a statement in sequence wait for each other. Therefore the first half of each statement is
written a few statements early, next to the second half of another statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

Lines: TypeAlias = list["str | Lines"]

MOST_AHEAD = 4
"""The greatest number of statements by which a first half is written early to hide its latency."""

REGISTERS_FOR_OTHERS = 12
"""Vector registers reserved for constants and intermediate values."""

_NAME = re.compile(r"%[\w.]+")
_SLOT = re.compile(r"%slot\d+")


@dataclass(slots=True)
class LineGroup:
    """Lines that stay together. `is_head` marks the first half of a divided statement. It may move
    earlier, because it reads no buffer that the statements write. `live_registers` is the number of
    registers that its values occupy until the second half."""

    lines: Lines = field(default_factory=list)
    is_head: bool = False
    live_registers: int = 0


@dataclass(slots=True)
class Statements:
    """A sequence of statements that is being written, at one nesting level. `writes` has the
    buffers that the statements write. `divisible` says whether the current statement may be
    divided."""

    depth: int
    writes: frozenset[str]
    pieces: list[LineGroup] = field(default_factory=lambda: [LineGroup()])
    divisible: bool = False

    def begin(self, reads: frozenset[str] | None) -> Lines:
        """Begin the next statement and return its lines.

        `reads` are the buffers that the statement reads before it writes, or None if the statement
        must not be divided.
        """
        self.divisible = reads is not None and not reads & self.writes
        self.pieces.append(LineGroup())
        return self.pieces[-1].lines

    def divide(self, live_registers: int) -> Lines:
        """End the statement's first half and return the lines of its second half."""
        self.divisible = False
        head = self.pieces[-1]
        head.live_registers = live_registers
        head.is_head = all(isinstance(line, str) and not _ends_block(line) for line in head.lines)
        self.pieces.append(LineGroup())
        return self.pieces[-1].lines


@dataclass(frozen=True, slots=True)
class Halves:
    """A dependence chain in two parts; the second needs `live_registers` values of the first."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    result: str
    live_registers: int


@lru_cache(maxsize=256)
def in_halves(lines: tuple[str, ...], result: str) -> Halves:
    """Divide a chain in its middle third, at the point with the fewest live values."""

    def live_at(at: int) -> int:
        rest = lines[at:]
        return len(set(_NAME.findall(" ".join([*rest, result]))) - set(map(_defined, rest)))

    third = len(lines) // 3
    places = range(third, len(lines) - third + 1)
    at = min(places, key=lambda at: (live_at(at), abs(2 * at - len(lines))))
    return Halves(lines[:at], lines[at:], result, live_at(at))


def in_order(pieces: Sequence[LineGroup], registers: int) -> Lines:
    """Return the lines of `pieces`, with first halves moved as early as `registers` allow."""
    heads = [piece for piece in pieces if piece.is_head]
    ahead = _room(pieces, heads, registers)
    if ahead <= 0:
        return [piece.lines for piece in pieces]
    missing = {name for piece in pieces for name in _defined_in(piece)}
    order: Lines = []
    passed = placed = 0  # heads passed in the old order, and placed in the new order
    for piece in pieces:
        if piece.is_head:
            passed += 1
            continue
        while placed < min(passed + ahead, len(heads)) and (
            placed < passed or not missing & _used_in(heads[placed])
        ):
            order.append(heads[placed].lines)
            missing -= _defined_in(heads[placed])
            placed += 1
        order.append(piece.lines)
        missing -= _defined_in(piece)
    return order


def _room(pieces: Sequence[LineGroup], heads: Sequence[LineGroup], registers: int) -> int:
    """Return by how many statements heads can be early: their values and the register arrays must
    leave REGISTERS_FOR_OTHERS registers free."""
    if len(heads) < 2:
        return 0
    held = {slot for piece in pieces for line in flat(piece.lines) for slot in _SLOT.findall(line)}
    free = registers - REGISTERS_FOR_OTHERS - len(held)
    return min(MOST_AHEAD, free // max(head.live_registers for head in heads) - 1)


def flat(lines: Lines) -> Iterator[str]:
    """Yield all lines, with nested lists flattened."""
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from flat(line)


def _ends_block(line: str) -> bool:
    return line.endswith(":") or line.startswith("  br ")


def _defined(line: str) -> str:
    """Return the name of the value that a line defines, or "" if it defines none."""
    name, equals, _ = line.partition(" = ")
    return name.strip() if equals else ""


def _defined_in(piece: LineGroup) -> set[str]:
    return {_defined(line) for line in flat(piece.lines)} - {""}


def _used_in(piece: LineGroup) -> set[str]:
    """Return the values that `piece` uses and does not define."""
    return {name for line in flat(piece.lines) for name in _NAME.findall(line)} - _defined_in(piece)
