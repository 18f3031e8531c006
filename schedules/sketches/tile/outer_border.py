"""Padding along the loops outside of a register tile, and how much of it tiles leave out.

Where windows leave an image along an outer axis, a whole step of a tap loop outside of the
innermost one multiplies by zeros: one test for a tile's share of that tap leaves it out, whether
rows are read in place or from a copy that holds the zeros. Along the rows of a tile it takes more,
see `border`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ...algebra.affine import Cond, Interval, prove
from ...workload.flops import points_where


@dataclass(frozen=True)
class OuterBorder:
    """Conditions of padding of a reduction over loops of `extents`."""

    conds: tuple[Cond, ...]
    extents: dict[str, int]

    def decided(self, around: frozenset[str]) -> tuple[Cond, ...]:
        """The conditions in which there are only loops of `around`."""
        return tuple(cond for cond in self.conds if cond.index.vars() <= around)

    def share(self, around: frozenset[str]) -> float:
        """How many points are left, of all, if conditions that loops of `around` decide hold."""
        total = prod(self.extents.values())
        return points_where(self.extents, self.decided(around)) / max(total, 1)

    def tested_values(self, rows: str, written_out: frozenset[str]) -> int:
        """For how many values of the loop `rows`, several of them in a tile, padding stays a test
        in each step of the innermost loop: there are taps in it that are not `written_out`. All,
        if taps that are written out have padding too: their copies differ."""
        conds = [cond for cond in self.conds if rows in cond.index.vars()]
        tested = [cond for cond in conds if not cond.index.vars() - {rows} <= written_out]
        if tested and any(cond.index.vars() & written_out for cond in self.conds):
            return self.extents[rows]
        ranges = {name: Interval(0, extent - 1) for name, extent in self.extents.items()}
        return sum(
            not all(prove(cond, {**ranges, rows: Interval(value, value)}) for cond in tested)
            for value in range(self.extents[rows])
        )
