"""Which tiles of a stage touch padding: where a tile sketch can leave padding's zeros out.

A condition of padding on the rows of a tile is decided when the code is written if each tile that
touches the edge has code of its own and the taps are written out; all other tiles then have no
conditions. Conditions on outer loops are tested there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..affine import Cond, Interval, prove
from ..primitives.zeros import neutral_conditions
from ..scalar import Reducer, Scalar
from .analysis import Loop

MOST_BORDER_TILES = 4
"""Tiles at the edges that get code of their own; more are not worth their size."""


@dataclass(frozen=True, slots=True)
class Border:
    """Padding of a reduction as a tile of `rows` sees it: `conds` speak of the rows, `taps` are the
    reduction loops in them, `ranges` holds every loop's values."""

    rows: Loop
    conds: tuple[Cond, ...]
    taps: frozenset[str]
    ranges: dict[str, Interval]

    def edges(self, tile: int) -> tuple[int, int, int]:
        """For tiles of `tile` rows: the first tile clear of padding, the first behind those, and
        how many there are. All are at the edge where the first two are equal."""
        count = -(-self.rows.extent // tile)
        # Padding is outside: what lies between two clear tiles is clear.
        first = next((t for t in range(count) if self._is_clear(t * tile, tile)), count)
        if first == count:
            return 0, 0, count
        last = next(t for t in reversed(range(count)) if self._is_clear(t * tile, tile))
        return first, last + 1, count

    def _is_clear(self, start: int, tile: int) -> bool:
        stop = min(start + tile, self.rows.extent)
        ranges = {**self.ranges, self.rows.name: Interval(start, stop - 1)}
        return all(prove(cond, ranges) for cond in self.conds)


def border_of(
    value: Scalar, reducer: Reducer | None, loops: Sequence[Loop], rows: Loop, columns: Loop
) -> Border | None:
    """The border of a stage that reduces `value` over `loops` of its own; None where there is no
    padding to skip, or its conditions depend on lanes or on rows in a way tiles do not decide."""
    conds = () if reducer is None else neutral_conditions(value, reducer)
    if not conds or any(columns.name in cond.index.vars() for cond in conds):
        return None
    own = tuple(cond for cond in conds if rows.name in cond.index.vars())
    others = frozenset[str]().union(*(cond.index.vars() for cond in own)) - {rows.name}
    taps = frozenset(loop.name for loop in loops if loop.reduce and loop.name in others)
    if others != taps:
        return None
    ranges = {loop.name: Interval(0, loop.extent - 1) for loop in loops}
    return Border(rows, own, taps, ranges)
