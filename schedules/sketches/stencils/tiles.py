"""Tiles of a group of stencils for every setting, with the statements in their loops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from ...arrays import BoolArray, IntArray, Number, map_unique
from ...leaves import AccessPattern, Dim, Leaf, LeafLoop, Statement
from ..analysis.stages import StageView
from ..groups import FusionGroup
from ..statements import own_place, statement_of
from ..vectors import parts_of
from .halos import TileRegions, extents_of, tiled_axes

AT_ONCE = (1, 2, 4)
"""Numbers of rows, and of vectors of a row, that are computed in one iteration."""

STAGE_COUNTS = 14
"""The numbers of each stage in `_counts`."""


@dataclass(frozen=True)
class StencilChoices:
    """The values of the knobs that determine the loops, shape (P,)."""

    rows: IntArray
    vectors: IntArray
    rows_at_once: IntArray
    vectors_at_once: IntArray
    variant: IntArray
    parallel: BoolArray


@dataclass(frozen=True)
class Tiles:
    """The tiles of a group in several variants, which inline different stages."""

    group: FusionGroup
    variants: tuple[FusionGroup, ...]
    lanes: int

    @cached_property
    def tiled(self) -> tuple[int, ...]:
        """The axes of the last stage, except the last one, that are divided into tiles."""
        return tiled_axes(self.group)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The extent of the longest result along each axis."""
        return extents_of(self.group)

    @property
    def divides_columns(self) -> bool:
        """Whether threads divide the tiles of columns, because there are no other axes."""
        return len(self.sizes) == 1

    def extents(self, rows: int, vectors: int) -> tuple[int, ...]:
        """Return the elements of a tile along each axis of the last stage."""
        outer = (rows if axis in self.tiled else 1 for axis in range(len(self.sizes) - 1))
        wanted = (*outer, vectors * self.lanes)
        return tuple(min(n, size) for n, size in zip(wanted, self.sizes, strict=True))

    @cached_property
    def _regions(self) -> dict[tuple[int, int, int], TileRegions]:
        return {}

    @cached_property
    def _evaluations(self) -> dict[tuple[int, str], tuple[Statement, Statement]]:
        return {}

    def regions(self, variant: int, rows: int, vectors: int) -> TileRegions:
        """Return the regions of a tile in variant number `variant`."""
        key = (variant, rows, vectors)
        if key not in self._regions:
            self._regions[key] = TileRegions(self.variants[variant], self.extents(rows, vectors))
        return self._regions[key]

    def leaves(self, v: StencilChoices) -> Iterator[Leaf]:
        """Yield the leaves of all variants, stage by stage: those of full tiles and of the last
        tiles of the strips, each with full vectors and a remainder."""
        for number in range(len(self.variants)):
            yield from self._of_variant(number, v)

    def _of_variant(self, number: int, v: StencilChoices) -> Iterator[Leaf]:
        def count(*choice: int) -> tuple[float, ...]:
            return self._counts(number, *choice)

        knobs = (v.rows, v.vectors, v.rows_at_once, v.vectors_at_once)
        strips, whole_strips, tiles, rests, *counts = map_unique(count, *knobs)
        here, last = v.variant == number, str(len(self.sizes) - 1)
        every = frozenset(map(str, range(len(self.sizes))))
        if self.divides_columns:
            whole = LeafLoop(every, here * tiles, None, v.parallel, tiles)
            rest = LeafLoop(every, here * rests)
        else:
            task = LeafLoop(every - {last}, here * strips, None, v.parallel, whole_strips)
            whole = LeafLoop(frozenset({last}), tiles, task)
            rest = LeafLoop(frozenset({last}), rests, task)
        for n, view in enumerate(self.variants[number].stages):
            turns, filled, *walks = counts[STAGE_COUNTS * n : STAGE_COUNTS * (n + 1)]
            for place, tile in enumerate((whole, rest)):
                row = LeafLoop(every - {last}, turns, tile)
                for part in range(2):
                    trips, copies, width = walks[6 * place + 3 * part :][:3]
                    loop = LeafLoop(frozenset({last}), trips, row)
                    for leaf in self._statements(number, view, v, loop, copies, width, filled):
                        yield replace(leaf, is_remainder=part > 0)

    def _statements(
        self,
        number: int,
        view: StageView,
        v: StencilChoices,
        loop: LeafLoop,
        copies: Number,
        width: Number,
        filled: Number,
    ) -> Iterator[Leaf]:
        """Yield the leaves of one stage of variant number `number` in `loop`. Rows that are
        computed at once are separate leaves, which share what they read."""
        taps = {axis.name: axis.extent for axis in view.reduce}
        does, result = self._evaluation(number, view)
        last = str(len(self.sizes) - 1)
        several = bool(self.tiled) and self.group.is_result(view)
        for row in range(AT_ONCE[-1] if several else 1):
            there = v.rows_at_once > row if several else 1
            tested = self._is_tested(view, v.rows_at_once) if several else 0
            axis = str(self.tiled[-1]) if several else ""
            vectors: Mapping[str, Number] = {last: copies}
            yield Leaf(
                loop, _moved_down(does, axis, row), {**vectors, **taps}, last, width, there, filled,
                tested, accumulators=copies if taps else 0, unrolls_reduction=bool(taps),
            )  # fmt: skip
            if taps:
                moved = _moved_down(result, axis, row)
                yield Leaf(loop, moved, vectors, last, width, there, filled, tested)

    def _evaluation(self, number: int, view: StageView) -> tuple[Statement, Statement]:
        """Return the statement of one evaluation of a stage of variant number `number`, and the one
        that stores the result of a reduction. They are computed once."""
        key = (number, view.name)
        if key not in self._evaluations:
            lead = len(self.sizes) - len(view.spatial)
            names = {axis.name: str(lead + d) for d, axis in enumerate(view.spatial)}
            taps = {axis.name: axis.name for axis in view.reduce}
            result = Statement(writes=own_place(view, names))
            self._evaluations[key] = statement_of(view, names | taps), result
        return self._evaluations[key]

    def _is_tested(self, view: StageView, at_once: IntArray) -> BoolArray:
        """Return whether rows of a result that are computed at once are tested, because some of
        them are beyond its last row in an iteration, shape (P,)."""
        axis = self.tiled[-1]
        extent = view.spatial[axis].extent
        found: BoolArray = (extent % at_once > 0) | (extent < self.sizes[axis])
        return found

    def _counts(
        self, variant: int, rows: int, vectors: int, at_once: int, most: int
    ) -> tuple[float, ...]:
        """Return the sizes of one setting: strips, strips if a shorter one counts as a fraction,
        full tiles of a strip, and other ones. Then for each stage the turns of its rows (an
        average over all tiles) and the fraction of them that compute elements. Then for full tiles
        and for the last ones, and for the full vectors of a row and its remainder: the iterations,
        their vectors and the lanes."""
        regions = self.regions(variant, rows, vectors)
        tile = regions.extents
        blocks, full = regions.counts, regions.full_tiles
        heaviest = max(regions.group.stages, key=regions.points)
        shares = {dim.axis: dim.mean / dim.extent for dim in regions.dims[heaviest.name]}
        tasks = prod(n * shares.get(axis, 1.0) for axis, n in enumerate(blocks[:-1]))
        found: list[float] = [prod(blocks[:-1]), tasks, full, blocks[-1] - full]
        for view in regions.group.stages:
            turns = prod(dim.mean for dim in regions.dims[view.name][:-1])
            filled = 1.0
            if self.group.is_result(view) and at_once > 1:
                axis = self.tiled[-1]
                whole, left = divmod(view.spatial[axis].extent, tile[axis])
                steps = whole * -(-tile[axis] // at_once) + -(-left // at_once)
                once = turns / regions.dims[view.name][axis].mean * steps / blocks[axis]
                turns, filled = once, turns / (once * at_once)
            found += [turns, filled]
            for extent in (regions.row(view), regions.last_row(view)):
                parts = [*parts_of(extent, self.lanes, most, cut=True), (0, 1, 1)][:2]
                for elements, width, copies in parts:
                    found += [-(-elements // (width * copies)), copies, width]
        return tuple(found)


def _moved_down(does: Statement, axis: str, rows: int) -> Statement:
    """Return the statement for the element `rows` elements further along `axis`."""
    if not rows:
        return does

    def moved(place: AccessPattern) -> AccessPattern:
        dims = tuple(
            Dim(dim.terms, dim.offset + rows * dict(dim.terms).get(axis, 0)) for dim in place.dims
        )
        return replace(place, key=(place.tensor, dims), dims=dims)

    writes = moved(does.writes) if does.writes else None
    return replace(does, reads=tuple(map(moved, does.reads)), writes=writes)
