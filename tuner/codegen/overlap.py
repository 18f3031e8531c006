"""An order of statements in which their long dependence chains overlap (software pipelining).

A math function is a chain of dependent instructions that is longer than a core's reorder window.
Therefore copies of a statement in sequence wait for each other. Each such statement is cut inside
each of its functions. The parts before the last cut, its *heads*, are written a few statements
early, next to later parts of other statements.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias

Lines: TypeAlias = list["str | Lines"]

MOST_AHEAD = 4
"""The greatest number of statements by which a head is written early, if it is the only one."""

MOST_CUTS = 8
"""The greatest number of cuts of a statement."""

REGISTERS_FOR_OTHERS = 12
"""Vector registers reserved for constants and intermediate values."""

_NAME = re.compile(r"%[\w.]+")
_SLOT = re.compile(r"%slot\d+")


@dataclass(slots=True)
class LineGroup:
    """Lines that stay together."""

    lines: Lines = field(default_factory=list)
    is_head: bool = False
    """Whether this is a part of a statement before its last cut. It may move before earlier
    statements, because it reads no buffer that they write."""
    live_registers: int = 0
    """The number of registers that the values of a head occupy until the next part uses them."""


@dataclass(slots=True)
class Statements:
    """Statements that are being written in sequence, at one nesting level."""

    depth: int
    writes: frozenset[str]
    """The buffers that the statements write."""
    pieces: list[LineGroup] = field(default_factory=lambda: [LineGroup()])
    divisible: bool = False
    """Whether the current statement may be cut."""
    cuts: int = 0
    """The number of cuts of the current statement."""

    def begin(self, reads: frozenset[str] | None) -> Lines:
        """Begin the next statement and return the list for its lines.

        `reads` are the buffers that the statement reads before it writes. None means that the
        statement must not be cut.
        """
        self.divisible, self.cuts = reads is not None and not reads & self.writes, 0
        self.pieces.append(LineGroup())
        return self.pieces[-1].lines

    def divide(self, live_registers: int) -> Lines:
        """Cut the current statement here. Return the list for the lines of its next part."""
        self.cuts += 1
        self.divisible = self.cuts < MOST_CUTS
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


@dataclass(frozen=True, slots=True)
class _Statement:
    """A statement: its heads, and the part that stays in its place."""

    heads: tuple[LineGroup, ...]
    tail: LineGroup

    def with_cuts(self, number: int) -> _Statement:
        """Return the statement with at most `number` of its cuts, evenly distributed."""
        count = len(self.heads)
        if count <= number:
            return self
        ends = [(n + 1) * (count + 1) // (number + 1) for n in range(number)]
        heads = tuple(
            LineGroup(_joined(self.heads[start:end]), True, self.heads[end - 1].live_registers)
            for start, end in pairwise([0, *ends])
        )
        rest = self.heads[ends[-1] if ends else 0 :]
        return _Statement(heads, LineGroup([*_joined(rest), *self.tail.lines]))

    def heads_wanted(self, later: int, ahead: int) -> int:
        """Return how many heads are written before the tail of the statement that is `later`
        statements before this one, if successive parts are `ahead` statements apart."""
        count = len(self.heads)
        return min(max(count + 1 - -(-later // ahead), 0), count)


def in_order(pieces: Sequence[LineGroup], registers: int) -> Lines:
    """Return the lines of `pieces` in a new order. Heads are moved as early as `registers`
    allow."""
    ahead, statements = _fitting(_statements(pieces), registers)
    if ahead <= 0:
        return [piece.lines for piece in pieces]
    missing = {name for piece in pieces for name in _defined_in(piece)}
    order: Lines = []
    written = [0] * len(statements)  # number of heads of each statement that are in `order`

    def write(piece: LineGroup) -> None:
        nonlocal missing
        order.append(piece.lines)
        missing -= _defined_in(piece)

    most = max(len(one.heads) for one in statements) * ahead
    for now, statement in enumerate(statements):
        wanted = (
            (number, head)
            for number, one in enumerate(statements[now : now + most + 1], start=now)
            for head in one.heads[written[number] : one.heads_wanted(number - now, ahead)]
        )
        for number, head in wanted:
            if number > now and missing & _used_in(head):
                break
            write(head)
            written[number] += 1
        write(statement.tail)
    return order


def _statements(pieces: Sequence[LineGroup]) -> list[_Statement]:
    """Return the statements: each is a number of heads, and the part after them."""
    found, heads = list[_Statement](), list[LineGroup]()
    for piece in pieces:
        if piece.is_head:
            heads.append(piece)
        else:
            found.append(_Statement(tuple(heads), piece))
            heads = []
    return found


def _fitting(statements: list[_Statement], registers: int) -> tuple[int, list[_Statement]]:
    """Return the distance of successive parts in statements, and the statements with as many cuts
    as registers allow. The distance is 0 if statements cannot overlap. The values of the heads and
    the register arrays must leave REGISTERS_FOR_OTHERS registers free."""
    if sum(bool(one.heads) for one in statements) < 2:
        return 0, statements
    parts = [piece for one in statements for piece in (*one.heads, one.tail)]
    held = {slot for piece in parts for line in flat(piece.lines) for slot in _SLOT.findall(line)}
    free = registers - REGISTERS_FOR_OTHERS - len(held)
    for cuts in range(max(len(one.heads) for one in statements), 0, -1):
        cut = [one.with_cuts(cuts) for one in statements]
        live = [[head.live_registers for head in one.heads] for one in cut if one.heads]
        # each of the parts of a statement that is being computed, and one part more
        room = (free - max(map(max, live))) // max(map(sum, live))
        ahead = min(max(MOST_AHEAD // cuts, min(MOST_AHEAD, 1)), room)
        if ahead > 0:
            return ahead, cut
    return 0, statements


def _joined(pieces: Sequence[LineGroup]) -> Lines:
    return [line for piece in pieces for line in piece.lines]


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
