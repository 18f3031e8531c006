"""Order the instructions of consecutive statements so that their dependence chains overlap.

A math function is a dependence chain longer than a core's out-of-order window, so consecutive
copies of a statement would execute one after another. The first half of each is therefore emitted a
few statements early, next to the second half of another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

Lines: TypeAlias = list["str | Lines"]

MOST_AHEAD = 4
"""Limit of statements by which a first half is emitted early: enough to cover its latency."""

REGISTERS_FOR_OTHERS = 12
"""Vector registers reserved for constants and for the current computation."""

_NAME = re.compile(r"%[\w.]+")
_SLOT = re.compile(r"%slot\d+")


@dataclass(slots=True)
class LineGroup:
    """Lines that stay together. A `head` may be emitted earlier, once its operands are defined: it
    reads nothing that is written in between. `kept` is the number of registers that hold its values
    until the statement continues."""

    lines: Lines = field(default_factory=list)
    is_head: bool = False
    kept: int = 0


@dataclass(slots=True)
class Statements:
    """A sequence of statements being written, at one nesting depth; `writes` are the buffers they
    write. `divisible` refers to the current statement."""

    depth: int
    writes: frozenset[str]
    pieces: list[LineGroup] = field(default_factory=lambda: [LineGroup()])
    divisible: bool = False

    def begin(self, reads: frozenset[str] | None) -> Lines:
        """The lines of the next statement, which reads the buffers `reads` before it writes; None
        for a statement that is not divided."""
        self.divisible = reads is not None and not reads & self.writes
        self.pieces.append(LineGroup())
        return self.pieces[-1].lines

    def divide(self, kept: int) -> Lines:
        """The lines of the second half of the statement; its lines so far are the first half."""
        self.divisible = False
        head = self.pieces[-1]
        head.kept = kept
        head.is_head = all(isinstance(line, str) and not _ends_block(line) for line in head.lines)
        self.pieces.append(LineGroup())
        return self.pieces[-1].lines


@dataclass(frozen=True, slots=True)
class Halves:
    """A chain in two parts; `kept` values of the first are needed by the second."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    result: str
    kept: int


@lru_cache(maxsize=256)
def in_halves(lines: tuple[str, ...], result: str) -> Halves:
    """A chain divided in its middle third, where the fewest values are live."""

    def kept(at: int) -> int:
        rest = lines[at:]
        return len(set(_NAME.findall(" ".join([*rest, result]))) - set(map(_defined, rest)))

    third = len(lines) // 3
    places = range(third, len(lines) - third + 1)
    at = min(places, key=lambda at: (kept(at), abs(2 * at - len(lines))))
    return Halves(lines[:at], lines[at:], result, kept(at))


def in_order(pieces: Sequence[LineGroup], registers: int) -> Lines:
    """The lines of `pieces`, with heads moved earlier by as many heads as fit in `registers`."""
    heads = [piece for piece in pieces if piece.is_head]
    ahead = _room(pieces, heads, registers)
    if ahead <= 0:
        return [piece.lines for piece in pieces]
    missing = {name for piece in pieces for name in _defined_in(piece)}
    order: Lines = []
    passed = placed = 0  # numbers of heads, in the old and in the new order
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
    """The number of statements by which heads may be moved earlier: their live values, and all
    others live throughout, must fit in the registers."""
    if len(heads) < 2:
        return 0
    held = {slot for piece in pieces for line in flat(piece.lines) for slot in _SLOT.findall(line)}
    free = registers - REGISTERS_FOR_OTHERS - len(held)
    return min(MOST_AHEAD, free // max(head.kept for head in heads) - 1)


def flat(lines: Lines) -> Iterator[str]:
    """All lines, with nested lists flattened."""
    for line in lines:
        if isinstance(line, str):
            yield line
        else:
            yield from flat(line)


def _ends_block(line: str) -> bool:
    return line.endswith(":") or line.startswith("  br ")


def _defined(line: str) -> str:
    """The name of the value that a line defines; "" if it defines none."""
    name, equals, _ = line.partition(" = ")
    return name.strip() if equals else ""


def _defined_in(piece: LineGroup) -> set[str]:
    return {_defined(line) for line in flat(piece.lines)} - {""}


def _used_in(piece: LineGroup) -> set[str]:
    """The names that `piece` uses and does not define."""
    return {name for line in flat(piece.lines) for name in _NAME.findall(line)} - _defined_in(piece)
