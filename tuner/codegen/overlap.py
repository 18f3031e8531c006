"""An order of statements in which their long dependence chains overlap (software pipelining).

A math function is a chain of dependent instructions that is longer than a core's reorder window.
Therefore copies of a statement in sequence wait for each other. Each such statement is cut in two
parts. The first part, its *head*, is written a few statements early, next to the second part of
another statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

Lines: TypeAlias = list["str | Lines"]

MOST_AHEAD = 4
"""The greatest number of statements by which a head is written early."""

REGISTERS_FOR_OTHERS = 12
"""Vector registers reserved for constants and intermediate values."""

_NAME = re.compile(r"%[\w.]+")
_SLOT = re.compile(r"%slot\d+")


@dataclass(slots=True)
class LineGroup:
    """Lines that stay together."""

    lines: Lines = field(default_factory=list)
    is_head: bool = False
    """Whether this is the first part of a cut statement. It may move before earlier statements,
    because it reads no buffer that they write."""
    live_registers: int = 0
    """The number of registers that the values of a head occupy until the second part uses them."""


@dataclass(slots=True)
class Statements:
    """Statements that are being written in sequence, at one nesting level."""

    depth: int
    writes: frozenset[str]
    """The buffers that the statements write."""
    pieces: list[LineGroup] = field(default_factory=lambda: [LineGroup()])
    divisible: bool = False
    """Whether the current statement may be cut."""

    def begin(self, reads: frozenset[str] | None) -> Lines:
        """Begin the next statement and return the list for its lines.

        `reads` are the buffers that the statement reads before it writes. None means that the
        statement must not be cut.
        """
        self.divisible = reads is not None and not reads & self.writes
        self.pieces.append(LineGroup())
        return self.pieces[-1].lines

    def divide(self, live_registers: int) -> Lines:
        """Cut the current statement here. Return the list for the lines of its second part."""
        self.divisible = False
        head = self.pieces[-1]
        head.live_registers = live_registers
        head.is_head = all(isinstance(line, str) and not _ends_block(line) for line in head.lines)
        self.pieces.append(LineGroup())
        return self.pieces[-1].lines


@dataclass(frozen=True, slots=True)
class Halves:
    """A dependence chain that is cut in two parts. The second part uses `live_registers` values of
    the first."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    result: str
    live_registers: int


@lru_cache(maxsize=256)
def in_halves(lines: tuple[str, ...], result: str) -> Halves:
    """Cut a chain in its middle third, where the number of live values is smallest."""

    def live_at(at: int) -> int:
        rest = lines[at:]
        return len(set(_NAME.findall(" ".join([*rest, result]))) - set(map(_defined, rest)))

    third = len(lines) // 3
    places = range(third, len(lines) - third + 1)
    at = min(places, key=lambda at: (live_at(at), abs(2 * at - len(lines))))
    return Halves(lines[:at], lines[at:], result, live_at(at))


def in_order(pieces: Sequence[LineGroup], registers: int) -> Lines:
    """Return the lines of `pieces` in a new order. Heads are moved as early as `registers`
    allow."""
    heads = [piece for piece in pieces if piece.is_head]
    ahead = _room(pieces, heads, registers)
    if ahead <= 0:
        return [piece.lines for piece in pieces]
    missing = {name for piece in pieces for name in _defined_in(piece)}
    order: Lines = []
    passed = placed = 0  # number of heads before `piece`, and number of heads that are in `order`
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
    """Return the greatest number of statements by which heads can be written early. The values of
    the heads and the register arrays must leave REGISTERS_FOR_OTHERS registers free."""
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
    """Return the name of the value that a line defines, or "" if there is none."""
    name, equals, _ = line.partition(" = ")
    return name.strip() if equals else ""


def _defined_in(piece: LineGroup) -> set[str]:
    return {_defined(line) for line in flat(piece.lines)} - {""}


def _used_in(piece: LineGroup) -> set[str]:
    """Return the values that `piece` uses and does not define."""
    return {name for line in flat(piece.lines) for name in _NAME.findall(line)} - _defined_in(piece)
