"""Which tiles of a stage touch padding: where a tile sketch can leave padding's zeros out.

A condition of padding on the rows of a tile is decided when the code is written if each tile that
touches the edge has code of its own and the taps are written out; all other tiles then have no
conditions. Conditions on outer loops are tested there. Where windows overlap along the lanes,
padding on both sides of them is masked in tiles of columns that touch it, and only there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...algebra.affine import Cond, Interval, prove
from ...algebra.scalar import Reducer, Scalar
from ...primitives.zeros import neutral_conditions
from ..analysis import Loop

MOST_BORDER_TILES = 4
"""Tiles at the edges that get code of their own; more are not worth their size."""


@dataclass(frozen=True, slots=True)
class Border:
    """Padding of a reduction as a tile of `rows` sees it: `conds` speak of the rows, `taps` are the
    reduction loops in them, `lane_conds` speak of the columns, `ranges` holds every loop's
    values. `rows` is None where tiles have but one."""

    rows: Loop | None
    columns: Loop
    conds: tuple[Cond, ...]
    lane_conds: tuple[Cond, ...]
    taps: frozenset[str]
    ranges: dict[str, Interval]

    def edges(self, tile: int) -> tuple[int, int, int]:
        """For tiles of `tile` rows: the first tile clear of padding, the first behind those, and
        how many there are. All are at the edge where the first two are equal."""
        return self._edges(self.rows, self.conds, tile) if self.rows else (0, 1, 1)

    def lane_edges(self, tile: int) -> tuple[int, int, int]:
        """The same for tiles of `tile` columns."""
        return self._edges(self.columns, self.lane_conds, tile)

    def _edges(self, loop: Loop, conds: tuple[Cond, ...], tile: int) -> tuple[int, int, int]:
        def is_clear(number: int) -> bool:
            values = Interval(number * tile, min((number + 1) * tile, loop.extent) - 1)
            ranges = {**self.ranges, loop.name: values}
            return all(prove(cond, ranges) for cond in conds)

        count = -(-loop.extent // tile)
        # Padding is outside: what lies between two clear tiles is clear.
        first = next((t for t in range(count) if is_clear(t)), count)
        if first == count:
            return 0, 0, count
        last = next(t for t in reversed(range(count)) if is_clear(t))
        return first, last + 1, count


def border_of(
    value: Scalar,
    reducer: Reducer | None,
    loops: Sequence[Loop],
    rows: Loop | None,
    columns: Loop,
) -> Border | None:
    """The border of a stage that reduces `value` over `loops` of its own; None where there is no
    padding to skip, or its conditions depend on lanes or on rows in a way tiles do not decide."""
    conds = () if reducer is None else neutral_conditions(value, reducer)
    own = tuple(cond for cond in conds if rows and rows.name in cond.index.vars())
    lane_conds = tuple(cond for cond in conds if columns.name in cond.index.vars())
    if not conds or (not own if lane_conds and rows else not lane_conds and not rows):
        return None
    taps = _taps_of(own, rows, loops) if rows else frozenset[str]()
    if taps is None or _taps_of(lane_conds, columns, loops) is None:
        return None
    ranges = {loop.name: Interval(0, loop.extent - 1) for loop in loops}
    return Border(rows, columns, own, lane_conds, taps, ranges)


def _taps_of(conds: Sequence[Cond], axis: Loop, loops: Sequence[Loop]) -> frozenset[str] | None:
    """The reduction loops in conditions on `axis`, None if other loops are in them as well."""
    others = frozenset[str]().union(*(cond.index.vars() for cond in conds)) - {axis.name}
    taps = frozenset(loop.name for loop in loops if loop.reduce and loop.name in others)
    return taps if others == taps else None
