"""The stencil sketch: stages that read neighbours of each other's elements, one tile at a time.

    strips of rows (parallel) | tiles of columns | stages, each: rows | vectors | rows at once | lanes

Each earlier stage has a private buffer with the region that the tile needs of it: the tile and its
halo. Halos are computed in each tile, so that strips are independent. The last tiles of a row are
separate code, so that full tiles need no masks. Several rows of the last stage are computed at once
to load their common neighbours once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Generic

import numpy as np

from ...algebra.affine import Affine, affine, var
from ...arrays import BoolArray, IntArray, map_unique
from ...leaves import Leaf, LeafLoop, Statement
from ...plan import Access, Level, LoopLevel, Outline, Plan, access_of, axes_of
from ...nest.finding import names_in
from ...primitives import CacheWrite, ComputeAt, Inline, Parallel, Stream, Unroll, Vectorize
from ..analysis.stages import SHORT_AXIS, StageView
from ..groups import FusionGroup, GroupSketch, Stages
from ..knobs import N, knob, nontemporal_knob, parallel_knob, settings
from ..statements import own_place, statement_of
from ..vectors import parts_of
from ..writer import BLOCKS, BODY, STEPS, UNROLLED, VECTORIZED, TraceWriter, called
from .halos import SMALL_TILE, RegionDim, TileRegions, is_local, stencil_group, tiled_axes
from .inlining import inlined_variants

ROWS = (1, 2, 4, 8, 16, 32, 64)
"""Values of the knob `tile_rows`, as far as an axis has so many rows."""

COLUMNS = (1, 2, 4, 8, 16, 32, 64)
"""Values of the knob `tile_vectors`, as far as a row has so many vectors."""

AT_ONCE = (1, 2, 4)


@settings
class StencilSettings(Generic[N]):
    """Knobs of tiles of stencils."""

    tile_rows: N = knob(lambda sketch: sketch.row_values, usual=3, absent=1)
    """Rows of a tile along each axis with neighbours, except the last axis."""
    tile_vectors: N = knob(lambda sketch: sketch.vector_values, usual=3)
    """Vectors in a row of a tile."""
    rows_at_once: N = knob(lambda sketch: AT_ONCE if sketch.row_values else (), usual=1, absent=1)
    """Rows of the last stage that are computed at once."""
    vectors: N = knob(lambda sketch: AT_ONCE, usual=0)
    """Vectors per iteration."""
    inline: N = knob(lambda sketch: tuple(range(len(sketch.variants))))
    """Number of the variant of the group: which stages are inlined."""
    parallel: N = parallel_knob(lambda sketch: sketch.strips > 1)
    nontemporal_stores: N = nontemporal_knob(lambda sketch: sketch.nontemporal_choices)


def stencil_sketch(stages: Stages, view: StageView) -> StencilSketch | None:
    """Return the sketch of `view` and earlier stages, or None if they are no stencils."""
    group = stencil_group(stages, view)
    return _sketch_of(stages, group) if group else None


def window_sketch(stages: Stages, view: StageView) -> StencilSketch | None:
    """Return the sketch of one elementwise stage that reads neighbours in several rows, or None."""
    alone = FusionGroup(view)
    fits = not view.is_reduction and is_local(view) and view.spatial[-1].extent >= SHORT_AXIS
    return _sketch_of(stages, alone) if fits and tiled_axes(alone) else None


def _sketch_of(stages: Stages, group: FusionGroup) -> StencilSketch:
    found = inlined_variants(stages, group)
    inlined, variants = tuple(names for names, _ in found), tuple(one for _, one in found)
    return StencilSketch(stages.workload, group, stages.target, inlined, variants)


@dataclass(frozen=True)
class StencilSketch(GroupSketch[StencilSettings[IntArray], StencilSettings[int]]):
    """The sketch of stages that read neighbours of each other's elements."""

    inlined: tuple[tuple[str, ...], ...]
    """The stages that each variant inlines, in program order."""
    variants: tuple[FusionGroup, ...]
    """The stages of each variant that are not inlined."""

    name = "stencils"
    SETTINGS = StencilSettings

    @cached_property
    def tiled(self) -> tuple[int, ...]:
        """The axes of the last stage, except the last one, that are divided into tiles."""
        return tiled_axes(self.group)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The extents of the axes of the last stage."""
        return tuple(loop.extent for loop in self.group.last.spatial)

    @property
    def row_values(self) -> tuple[int, ...]:
        most = max((self.sizes[axis] for axis in self.tiled), default=0)
        return tuple(n for n in ROWS if n < 2 * most)

    @property
    def vector_values(self) -> tuple[int, ...]:
        vectors = -(-self.sizes[-1] // self.lanes)
        return tuple(n for n in COLUMNS if n == 1 or n < 2 * vectors)

    @property
    def strips(self) -> int:
        """The number of tasks with tiles of one row, or of one vector if there are no rows."""
        return prod(self.sizes[:-1]) if len(self.sizes) > 1 else -(-self.sizes[0] // self.lanes)

    def tile(self, rows: int, vectors: int) -> tuple[int, ...]:
        """Return the elements of a tile along each axis of the last stage."""
        outer = (rows if axis in self.tiled else 1 for axis in range(len(self.sizes) - 1))
        wanted = (*outer, vectors * self.lanes)
        return tuple(min(n, size) for n, size in zip(wanted, self.sizes, strict=True))

    @cached_property
    def _regions(self) -> dict[tuple[int, int, int], TileRegions]:
        return {}

    def regions(self, variant: int, rows: int, vectors: int) -> TileRegions:
        """Return the regions of a tile in variant number `variant`."""
        key = (variant, rows, vectors)
        if key not in self._regions:
            self._regions[key] = TileRegions(self.variants[variant], self.tile(rows, vectors))
        return self._regions[key]

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether a setting is profitable, shape (P,): the buffers of a tile occupy at most
        half of a core's private caches, a tile has as many rows and vectors as are computed at
        once, and no smaller value of a knob gives the same tile."""
        v = self.values(settings)
        most = self.target.own_cache_bytes

        def fits(variant: int, rows: int, vectors: int) -> tuple[float, ...]:
            found = self.regions(variant, rows, vectors)
            least = rows <= SMALL_TILE and vectors == 1
            return (found.are_boxes and (least or 2 * found.buffer_bytes <= most),)

        (ok,) = map_unique(fits, v.inline, v.tile_rows, v.tile_vectors)
        good: BoolArray = (ok > 0) & (v.rows_at_once <= v.tile_rows) & (v.vectors <= v.tile_vectors)
        return good

    def default(self) -> tuple[int, ...]:
        """Return the setting with the default of each knob, or with a smaller tile if its buffers
        are too large or there are fewer tasks than threads."""
        names = [knob.name for knob in self.knobs]
        usual = dict(zip(names, super().default(), strict=True))
        found = super().default()
        for rows in range(usual.get("tile_rows", 0), -1, -1):
            for vectors in range(usual["tile_vectors"], -1, -1):
                smaller = {"tile_rows": rows, "tile_vectors": vectors}
                once = min(usual.get("rows_at_once", 0), rows)
                setting = self.with_defaults({**usual, **smaller, "rows_at_once": once})
                if self.feasible(np.asarray([setting]))[0]:
                    found, v = setting, self.chosen(setting)
                    if not v.parallel or self._tasks(v) >= self.target.threads:
                        return setting
        return found

    def _tasks(self, v: StencilSettings[int]) -> int:
        *outer, columns = self.tile(v.tile_rows, v.tile_vectors)
        if not outer:
            return -(-self.sizes[-1] // columns)
        return prod(-(-n // t) for n, t in zip(self.sizes, outer, strict=False))

    @property
    def _divides_columns(self) -> bool:
        """Whether threads divide the tiles of columns, because there are no other axes."""
        return len(self.sizes) == 1

    @cached_property
    def _outline(self) -> Outline:
        """The axes of the last stage, and the accesses of all stages in terms of them."""
        group, last = self.variants[0], self.group.last
        names = [loop.name for loop in last.spatial]
        found: dict[str, Access] = {}
        regions = TileRegions(group, self.tile(SMALL_TILE, 1))
        for view in group.stages:
            at = _axes_of(view, regions.dims[view.name], names)
            for read in view.reads:
                index = [i.substitute(at) for i in read.index]
                one = access_of(read.tensor, read.dtype.bytes, index, names)
                if read.tensor in group.producer_names:
                    one = replace(one, private_levels=len(names))
                found.setdefault(read.tensor, one)
        own = [var(name) for name in names]
        written = replace(access_of(last.name, last.dtype.bytes, own, names), is_output=True)
        axes = axes_of((loop.name, loop.extent) for loop in last.spatial)
        return Outline(axes, (*found.values(), written))

    def plan(self, settings: IntArray) -> Plan:
        """Return the plan with the loops of the module docstring."""
        v = self.values(settings)
        *outer, column = range(len(self.sizes))
        parallel, wide = v.parallel > 0, v.tile_vectors * self.lanes
        rows = [axis for axis in outer if axis in self.tiled]
        once = rows[-1] if rows else -1
        levels = [
            *(Level(n, v.tile_rows if n in rows else 1, parallel, BLOCKS) for n in outer),
            Level(column, wide, parallel if self._divides_columns else False, BLOCKS),
            *(Level(n, v.rows_at_once if n == once else 1, role=STEPS) for n in rows),
            Level(column, v.vectors * self.lanes, role=STEPS),
            Level(column, self.lanes, role=BODY, kind=UNROLLED),
            *(Level(n, 1, role=BODY, kind=UNROLLED) for n in rows[-1:]),
            Level(column, 1, role=BODY, kind=VECTORIZED),
        ]
        stores = v.nontemporal_stores > 0
        return Plan(self._outline, tuple(levels), len(wide), nontemporal=stores)

    def leaves(self, settings: IntArray) -> Iterator[Leaf]:
        """Yield the leaves of the full vectors of a row and of its remainder, stage by stage."""
        v = self.values(settings)
        every = frozenset(map(str, range(len(self.sizes))))
        last_axis = str(len(self.sizes) - 1)
        divided = every if self._divides_columns else every - {last_axis}
        for number, group in enumerate(self.variants):

            def count(
                rows: int, vectors: int, at_once: int, most: int, number: int = number
            ) -> tuple[float, ...]:
                return self._counts(number, rows, vectors, at_once, most)

            found = map_unique(count, v.tile_rows, v.tile_vectors, v.rows_at_once, v.vectors)
            strips, full_strips, tiles, *counts = found
            there, shared = v.inline == number, v.parallel > 0
            if self._divides_columns:
                task = tile = LeafLoop(divided, there * tiles, None, shared, tiles)
            else:
                task = LeafLoop(divided, there * strips, None, shared, full_strips)
                tile = LeafLoop(frozenset({last_axis}), tiles, task)
            for n, view in enumerate(group.stages):
                turns, filled, trips, copies, tails, width = counts[6 * n : 6 * n + 6]
                lead = len(self.sizes) - len(view.spatial)
                names = {loop.name: str(lead + d) for d, loop in enumerate(view.spatial)}
                taps = {loop.name: loop.name for loop in view.reduce}
                does = statement_of(view, names | taps)
                row = LeafLoop(every - {last_axis}, turns, tile)
                once = {str(self.tiled[-1]): v.rows_at_once} if self.tiled else {}
                once = once if view is group.last else {}
                whole = LeafLoop(frozenset({last_axis}), trips, row)
                rest = LeafLoop(frozenset({last_axis}), tails, row)
                lanes = self.lanes
                sizes = {loop.name: loop.extent for loop in view.reduce}
                for loop, copied, wide in ((whole, copies, lanes), (rest, 1, width)):
                    most = {**once, last_axis: copied}
                    sums = prod(most.values(), start=1) if sizes else 0
                    yield Leaf(
                        loop, does, {**most, **sizes}, last_axis, wide, 1, filled,
                        is_remainder=loop is rest, accumulators=sums, unrolls_reduction=bool(sizes),
                    )  # fmt: skip
                    if sizes:
                        result = Statement(writes=own_place(view, names))
                        yield Leaf(
                            loop, result, most, last_axis, wide, 1, filled,
                            is_remainder=loop is rest,
                        )  # fmt: skip

    def _counts(
        self, variant: int, rows: int, vectors: int, at_once: int, most: int
    ) -> tuple[float, ...]:
        """Return the sizes of one setting: strips, strips if a shorter one counts as a fraction,
        and tiles of a strip. Then for each stage the turns of its rows, the fraction of them that
        compute elements, the iterations along a row, their vectors, and the iterations and lanes
        of the remainder. All are averages over the tiles."""
        regions = self.regions(variant, rows, vectors)
        tile = regions.extents
        blocks = [-(-n // t) for n, t in zip(self.sizes, tile, strict=True)]
        mean = [n / b for n, b in zip(self.sizes, blocks, strict=True)]
        fractions = [n / t for n, t in zip(self.sizes, tile, strict=True)]
        found: list[float] = [prod(blocks[:-1]), prod(fractions[:-1]), blocks[-1]]
        for view in regions.group.stages:
            *outer, along = regions.dims[view.name]
            full = prod(
                dim.extent - dim.scale * (tile[dim.axis] - mean[dim.axis] if dim.axis >= 0 else 0)
                for dim in outer
            )
            turns, filled = full, 1.0
            if view is regions.group.last and at_once > 1:
                axis = self.tiled[-1]
                whole, rest = divmod(self.sizes[axis], tile[axis])
                steps = whole * -(-tile[axis] // at_once) + -(-rest // at_once)
                turns = full / mean[axis] * steps / blocks[axis]
                filled = full / (turns * at_once)
            walks = [(along.extent, blocks[-1] - 1), (self._useful(along, tile), 1)]
            parts = [(parts_of(n, self.lanes, most, cut=True), times) for n, times in walks]
            trips = sum(t * p[0][0] / (p[0][1] * p[0][2]) for p, t in parts) / blocks[-1]
            rest = [(p[1], t) for p, t in parts if len(p) > 1]
            tails = sum(t * -(-n // width) for (n, width, _), t in rest) / blocks[-1]
            found += [turns, filled, trips, parts[0][0][0][2], tails, rest[0][0][1] if rest else 1]
        return tuple(found)

    def _useful(self, dim: RegionDim, tile: tuple[int, ...]) -> int:
        """Return the elements along a row that the last tile needs of a stage."""
        if dim.axis != len(tile) - 1:
            return dim.extent
        rest = self.sizes[-1] % tile[-1] or tile[-1]
        return dim.extent - dim.scale * (tile[-1] - rest)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Emit the loops of a setting."""
        v, w = self.chosen(setting), writer
        group = self.variants[v.inline]
        w.do(*(Inline(name) for name in self.inlined[v.inline]))
        regions = self.regions(v.inline, v.tile_rows, v.tile_vectors)
        place, strip, own = self._tiles(w, group, regions.extents)
        copies, tails = [(own, False)], dict[str, str]()
        if not (v.parallel and self._divides_columns):
            full, count = self.sizes[-1] // regions.extents[-1], w.loop(place).extent
            if 0 < full < count:
                tails = w.partition(place, full)
                moved = {name: [tails[x] for x in loops] for name, loops in own.items()}
                copies.append((moved, True))
        for loops, is_last in copies:
            for view in group.stages:
                dim = regions.dims[view.name][-1]
                useful = self._useful(dim, regions.extents) if is_last else dim.extent
                once = v.rows_at_once if view is group.last and self.tiled else 1
                taps = [tails[x.name] if is_last else x.name for x in view.reduce]
                own_loops = loops[view.name], taps
                useful = useful if dim.extent > 1 else 0
                self._stage(w, view, own_loops, useful, once, v.vectors)
        if v.parallel:
            w.do(Parallel(strip or place))
        if v.nontemporal_stores:
            w.do(Stream(group.last.name))

    def _tiles(
        self, w: TraceWriter, group: FusionGroup, tile: tuple[int, ...]
    ) -> tuple[str, str, dict[str, list[str]]]:
        """Emit the loops over tiles, and move all stages into them. Return the loop over the tiles
        of a strip, the loop over strips or "", and the loops of each stage inside a tile."""
        loops = w.spatial_loops(group.last.name)
        *outer, column = (
            LoopLevel(loop, step, role=BLOCKS) for loop, step in zip(loops, tile, strict=True)
        )
        inner = [LoopLevel(x) for x, t in zip(loops[:-1], tile[:-1], strict=True) if t > 1]
        made = w.arrange([*outer, column, *inner, LoopLevel(loops[-1])])
        *strips, place = called(made, BLOCKS)
        own = {group.last.name: called(made, "")}
        strip = w.fuse_all(strips)
        for view in reversed(group.producers):
            moved = w.remake(ComputeAt(view.name, place))
            own[view.name] = [new for found in moved.values() for new in found]
        return place, strip, own

    def _stage(
        self,
        w: TraceWriter,
        view: StageView,
        loops: tuple[list[str], list[str]],
        useful: int,
        once: int,
        most: int,
    ) -> None:
        """Emit the loops of one stage inside a tile. `loops` are its spatial loops there and those
        of its window. `useful` elements of its row are needed, or 0 if it has no row."""
        rows, taps = [*loops[0]], loops[1]
        if not useful:
            self._sum(w, view, rows[-1] if rows else "", taps)
            return
        column = rows.pop()
        inside: list[str] = []
        if once > 1 and rows:
            outer, row = w.split(rows[-1], once)
            w.reorder(outer, column, row)
            inside = [row]
        inside += taps
        parts = parts_of(useful, self.lanes, most, cut=True)
        names = [(column, inside)]
        if len(parts) > 1:
            moved = w.partition(column, parts[0][0])
            names.append((moved[column], [moved[row] for row in inside]))
        for (name, within), (_, width, vectors) in zip(names, parts, strict=True):
            outer, lanes = w.split(name, width)
            w.reorder(outer, *within, lanes)
            step = outer
            if vectors > 1:
                step, several = w.split(outer, vectors)
                w.do(Unroll(several))
            w.do(*map(Unroll, within))
            if width > 1:
                w.do(Vectorize(lanes))
            self._sum(w, view, step, [])

    def _sum(self, w: TraceWriter, view: StageView, step: str, taps: list[str]) -> None:
        """Accumulate the results of a reduction in registers, inside loop `step`."""
        if not view.is_reduction or not step:
            return
        # Code for the last tiles has a buffer of its own.
        (buffer,) = {leaf.buffer for leaf in w.loop(step).inside.leaves}
        name = f"{buffer}.acc"
        while name in names_in(w.nest):
            name += "'"
        w.do(CacheWrite(buffer, step, name), *map(Unroll, taps))


def _axes_of(view: StageView, dims: Sequence[RegionDim], names: Sequence[str]) -> dict[str, Affine]:
    """Return the loops of a stage in terms of the axes of the last stage, which are `names`. Offsets
    are left out."""
    return {
        loop.name: var(names[dim.axis]) * dim.scale if dim.axis >= 0 else affine(0)
        for loop, dim in zip(view.spatial, dims, strict=True)
    }
