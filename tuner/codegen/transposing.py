"""Transposition of a block of registers: vectors of rows become vectors of columns.

The code is a network of two-operand shuffles, n log2(n) of them for n vectors. First, groups of 1,
2, ... elements of two vectors are interleaved within 128 bits. Then 128-bit parts are exchanged. A
shuffle within 128 bits is one cheap instruction on every x86. The network is simulated on labels,
so that a column is found by its contents instead of by a formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from .values import Val, lane_choice, type_text

Label: TypeAlias = tuple[int, int]
"""The row and the column of the element in a lane."""

Halves: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]
"""The lanes that form each of the two results of shuffling a pair of vectors."""

PART_BITS = 128


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The vector of the given `lanes` of vectors `a` and `b`, which are concatenated.

    `a` and `b` are numbers: first the rows from 0 on, then the results of earlier shuffles.
    """

    a: int
    b: int
    lanes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """Shuffles that transpose `size` vectors of `size` lanes."""

    size: int
    shuffles: tuple[Shuffle, ...]
    columns: tuple[int, ...]
    """The number of the vector that contains each column."""


@lru_cache(maxsize=64)
def network(size: int, bits: int) -> Network:
    """Return the network for `size` (a power of two) vectors of elements of `bits` bits."""
    part = min(max(PART_BITS // bits, 1), size)
    held: list[tuple[Label, ...]] = [tuple((r, c) for c in range(size)) for r in range(size)]
    shuffles: list[Shuffle] = []
    current = list(range(size))

    def apply(a: int, b: int, lanes: tuple[int, ...]) -> int:
        shuffles.append(Shuffle(a, b, lanes))
        both = held[a] + held[b]
        held.append(tuple(both[lane] for lane in lanes))
        return len(held) - 1

    piece = 1
    while piece < part:  # interleave within each part
        current = _paired(current, piece, apply, _interleaved(size, part, piece))
        piece *= 2
    unit = part
    while unit < size:  # separate even and odd parts
        current = _paired(current, unit, apply, _parted(size, part))
        unit *= 2
    wanted = [tuple((r, c) for r in range(size)) for c in range(size)]
    by_label = {held[n]: n for n in current}
    return Network(size, tuple(shuffles), tuple(by_label[labels] for labels in wanted))


def _interleaved(size: int, part: int, piece: int) -> Halves:
    """Return the lanes that alternate groups of `piece` elements of two vectors. The first result
    has the lower half of each 128-bit part, the second the upper half."""
    low: list[int] = []
    high: list[int] = []
    for start in range(0, size, part):
        for into, begin in ((low, start), (high, start + part // 2)):
            for at in range(begin, begin + part // 2, piece):
                into += [*range(at, at + piece), *range(size + at, size + at + piece)]
    return tuple(low), tuple(high)


def _parted(size: int, part: int) -> Halves:
    """Return the lanes of the even parts of two vectors, and the lanes of the odd parts."""
    parts = [tuple(range(start, start + part)) for start in range(0, 2 * size, part)]
    even = tuple(lane for p in parts[0::2] for lane in p)
    odd = tuple(lane for p in parts[1::2] for lane in p)
    return even, odd


def _paired(
    vectors: list[int],
    distance: int,
    shuffle: Callable[[int, int, tuple[int, ...]], int],
    halves: Halves,
) -> list[int]:
    """Return the vectors after shuffling all pairs whose positions differ by `distance`."""
    result = list(vectors)
    for start in range(0, len(vectors), 2 * distance):
        for n in range(start, start + distance):
            pair = vectors[n], vectors[n + distance]
            result[n], result[n + distance] = (shuffle(*pair, half) for half in halves)
    return result


class Transposed:
    """The columns of a block whose rows are `rows`. A shuffle is written when a column needs it."""

    def __init__(self, assign: Callable[[str, str], str], rows: Sequence[Val]) -> None:
        self._assign = assign
        self._dtype, self._count, self._lanes = rows[0].dtype, len(rows), rows[0].lanes
        size = 1
        while size < max(self._count, self._lanes):
            size *= 2
        self._network = network(size, self._dtype.bytes * 8)
        self._names: dict[int, str] = {n: self._widened(row) for n, row in enumerate(rows)}

    def column(self, number: int) -> Val:
        """Return lane `number` of every row, as one vector."""
        whole = self._vector(self._network.columns[number])
        size = self._network.size
        if self._count == size:
            return Val(whole, self._dtype, size)
        kind = type_text(self._dtype, size)
        choice = lane_choice(list(range(self._count)))
        cut = self._assign(f"shufflevector {kind} {whole}, {kind} poison, {choice}", "t")
        return Val(cut, self._dtype, self._count)

    def _widened(self, row: Val) -> str:
        size = self._network.size
        if row.lanes == size:
            return row.name
        choice = lane_choice([n if n < row.lanes else None for n in range(size)])
        return self._assign(f"shufflevector {row.typed}, {row.type} poison, {choice}", "t")

    def _vector(self, number: int) -> str:
        if number in self._names:
            return self._names[number]
        size = self._network.size
        kind = type_text(self._dtype, size)
        if number < size:  # beyond the last row
            return "poison"
        shuffle = self._network.shuffles[number - size]
        a, b = self._vector(shuffle.a), self._vector(shuffle.b)
        name = self._assign(
            f"shufflevector {kind} {a}, {kind} {b}, {lane_choice(shuffle.lanes)}", "t"
        )
        self._names[number] = name
        return name
