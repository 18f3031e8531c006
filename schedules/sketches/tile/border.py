"""Tiles that touch padding, and the conditions for skipping products with the zeros of padding.

A padding condition on the rows of a tile is decided at compile time if each tile at the edge has
separate code and the taps are unrolled. All other tiles then have no conditions. Conditions on
outer loops are tested in those loops. If windows overlap along the lanes, padding on both sides is
masked, only in the tiles of columns that touch it.

If a window leaves the image along an axis outside the tile, a whole step of an outer tap loop
multiplies by zeros. One test per tile and tap skips this step. Rows may be read in place, or from a
copy that contains the zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...algebra.affine import Interval
from ...algebra.comparisons import Cond, prove
from ...arrays import IntArray
from ..analysis.stages import StageLoop


@dataclass(frozen=True, slots=True)
class Border:
    """The padding conditions of a tiled reduction, by the loops of its tiles."""

    conds: dict[str, tuple[Cond, ...]]
    """The conditions that contain the row loop, and those that contain the column loop, by loop
    name."""
    taps: frozenset[str]
    """The names of the reduction loops that occur in the conditions of the row loop."""
    ranges: dict[str, Interval]
    """The range of values of each loop."""
    _proved: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict, compare=False)

    def edges(self, loop: str, tiles: IntArray) -> IntArray:
        """Return the number of tiles along `loop` that touch padding, shape (P,). `tiles` are the
        sizes of the tiles in elements."""
        sizes, place = np.unique(tiles, return_inverse=True)
        counts = [self.ranges[loop].hi // size + 1 for size in sizes.tolist()]
        clear = [self.clear(loop, size) for size in sizes.tolist()]
        edges = [count - (stop - start) for count, (start, stop) in zip(counts, clear, strict=True)]
        return np.asarray(edges, np.int64)[place.reshape(-1)]

    def clear(self, loop: str, tile: int) -> tuple[int, int]:
        """Return the first tile without padding, and the first tile after all tiles without
        padding. If they are equal, every tile touches padding. Tiles have `tile` elements of
        `loop`."""
        if (loop, tile) not in self._proved:
            self._proved[loop, tile] = self._clear(loop, tile)
        return self._proved[loop, tile]

    def _clear(self, loop: str, tile: int) -> tuple[int, int]:
        last = self.ranges[loop].hi

        def is_clear(number: int) -> bool:
            values = Interval(number * tile, min((number + 1) * tile - 1, last))
            ranges = {**self.ranges, loop: values}
            return all(prove(cond, ranges) for cond in self.conds.get(loop, ()))

        # No tile between two tiles without padding has padding.
        numbers = range(last // tile + 1)
        first = next((t for t in numbers if is_clear(t)), None)
        if first is None:
            return 0, 0
        return first, next(t for t in reversed(numbers) if is_clear(t)) + 1


def border_of(
    conds: Sequence[Cond], loops: Sequence[StageLoop], rows: StageLoop | None, columns: StageLoop
) -> Border | None:
    """Return the border of a reduction over `loops` with the padding conditions `conds`.

    Return None if there is no padding to skip, or if a condition on lanes or rows contains other
    loops than taps.
    """
    of_rows = tuple(cond for cond in conds if rows and rows.name in cond.index.vars())
    of_lanes = tuple(cond for cond in conds if columns.name in cond.index.vars())
    nothing = not of_rows if of_lanes else not conds
    if (nothing if rows else not of_lanes) or _taps_of(of_lanes, columns, loops) is None:
        return None
    taps = _taps_of(of_rows, rows, loops)
    ranges = {loop.name: Interval(0, loop.extent - 1) for loop in loops}
    found = {loop.name: own for loop, own in ((rows, of_rows), (columns, of_lanes)) if loop and own}
    return None if taps is None else Border(found, taps, ranges)


def _taps_of(
    conds: Sequence[Cond], axis: StageLoop | None, loops: Sequence[StageLoop]
) -> frozenset[str] | None:
    """Return the reduction loops in the conditions on `axis`. Return None if the conditions contain
    other loops."""
    others = frozenset[str]().union(*(cond.index.vars() for cond in conds))
    others -= {axis.name} if axis else set()
    taps = frozenset(loop.name for loop in loops if loop.reduce and loop.name in others)
    return taps if others == taps else None
