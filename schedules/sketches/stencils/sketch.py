"""The stencil sketch: stages that read neighbours of each other's elements, one tile at a time.

    strips of rows (parallel) | tiles of columns | stages: rows | vectors | rows at once | lanes

Each earlier stage has a private buffer with the region that the tile needs of it: the tile and its
halo. Halos are computed in each tile, so that strips are independent. The last tiles of a row are
separate code, so that full tiles need no masks. Several rows of the last stage are computed at once
to load their common neighbours once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Generic

import numpy as np

from ...algebra.affine import Affine, affine, var
from ...arrays import BoolArray, IntArray, map_unique
from ...leaves import Leaf
from ...plan import Access, Level, Outline, Plan, access_of, axes_of
from ...primitives import Inline, Parallel, Stream
from ..analysis.stages import SHORT_AXIS, StageView, windows_of
from ..groups import FusionGroup, GroupSketch, Stages
from ..knobs import N, knob, nontemporal_knob, parallel_knob, settings, stores_whole_lines
from ..writer import BLOCKS, BODY, STEPS, UNROLLED, VECTORIZED, TraceWriter
from .halos import (
    MOST_RECOMPUTED,
    SMALL_TILES,
    RegionDim,
    TileRegions,
    group_of_scales,
    is_local,
    reads_neighbours,
    stencil_group,
)
from .inlining import inlined_variants
from .tiles import AT_ONCE, StencilChoices, Tiles
from .trace import TileWriter

ROWS = (1, 2, 4, 8, 16, 32, 64)
"""Values of the knob `tile_rows`, as far as an axis has so many rows."""

COLUMNS = (1, 2, 4, 8, 16, 32, 64)
"""Values of the knob `tile_vectors`, as far as a row has so many vectors."""


@settings
class StencilSettings(Generic[N]):
    """Knobs of tiles of stencils."""

    tile_rows: N = knob(lambda sketch: sketch.row_values, usual=3, absent=1)
    """Rows of a tile along each axis with neighbours, except the last axis."""
    tile_vectors: N = knob(lambda sketch: sketch.vector_values, usual=3)
    """Vectors in a row of a tile."""
    rows_at_once: N = knob(lambda sketch: AT_ONCE if sketch.row_values else (), usual=1, absent=1)
    """Rows of a result that are computed at once."""
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


def scales_sketch(stages: Stages, view: StageView) -> StencilSketch | None:
    """Return the sketch of `view` and earlier stages, some of which are read at quotients, or None
    if there are no such stages or if tiles would not save reads."""
    group = group_of_scales(stages, view)
    return _sketch_of(stages, group) if group else None


def window_sketch(stages: Stages, view: StageView) -> StencilSketch | None:
    """Return the sketch of one elementwise stage that reads neighbours in several rows, or None."""
    alone = FusionGroup(view)
    fits = not view.is_reduction and is_local(view) and view.spatial[-1].extent >= SHORT_AXIS
    several_rows = any(reads_neighbours(view, loop.name) for loop in view.spatial[:-1])
    return _sketch_of(stages, alone) if fits and several_rows else None


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
    def tiles(self) -> Tiles:
        """The tiles of all settings."""
        return Tiles(self.group, self.variants, self.lanes)

    @property
    def row_values(self) -> tuple[int, ...]:
        most = max((self.tiles.sizes[axis] for axis in self.tiles.tiled), default=0)
        return tuple(n for n in ROWS if n < 2 * most)

    @property
    def vector_values(self) -> tuple[int, ...]:
        vectors = -(-self.tiles.sizes[-1] // self.lanes)
        return tuple(n for n in COLUMNS if n == 1 or n < 2 * vectors)

    @property
    def strips(self) -> int:
        """The number of tasks with tiles of one row, or of one vector if there are no rows."""
        return (
            prod(self.tiles.sizes[:-1])
            if len(self.tiles.sizes) > 1
            else -(-self.tiles.sizes[0] // self.lanes)
        )

    @cached_property
    def _least_rows(self) -> int:
        """The rows of the smallest tile for which the regions of all stages are boxes."""
        found = (n for n in self.row_values if self.tiles.regions(0, n, 1).are_boxes)
        return max(next(found, 1), min(SMALL_TILES))

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether a setting is profitable, shape (P,): the buffers of a tile occupy at most
        half of a core's private caches, a tile has as many rows and vectors as are computed at
        once, no smaller value of a knob gives the same tile, and non-temporal stores fill whole
        lines."""
        v = self.values(settings)
        most = self.target.own_cache_bytes

        def fits(variant: int, rows: int, vectors: int) -> tuple[float, ...]:
            found = self.tiles.regions(variant, rows, vectors)
            least = rows <= self._least_rows and vectors == 1
            return (found.are_boxes and (least or 2 * found.buffer_bytes <= most),)

        (ok,) = map_unique(fits, v.inline, v.tile_rows, v.tile_vectors)
        good: BoolArray = (ok > 0) & (v.rows_at_once <= v.tile_rows) & (v.vectors <= v.tile_vectors)
        return good & self._stores_whole_lines(v.nontemporal_stores, v.vectors)

    def default(self) -> tuple[int, ...]:
        """Return the setting with the default of each knob, but with more rows if a tile would
        repeat too many operations, with a smaller tile if its buffers are too large or there are
        fewer tasks than threads, and with as many vectors as non-temporal stores need."""
        names = [knob.name for knob in self.knobs]
        usual = dict(zip(names, super().default(), strict=True))
        usual["vectors"] = self._fewest_vectors(bool(usual.get("nontemporal_stores")))
        found = super().default()
        most = self._rows_with_small_halo(usual)
        for rows in range(most, -1, -1):
            for vectors in range(usual["tile_vectors"], -1, -1):
                smaller = {"tile_rows": rows, "tile_vectors": vectors}
                once = min(usual.get("rows_at_once", 0), rows)
                setting = self.with_defaults({**usual, **smaller, "rows_at_once": once})
                if self.feasible(np.asarray([setting]))[0]:
                    found, v = setting, self.chosen(setting)
                    if not v.parallel or self._tasks(v) >= self.target.threads:
                        return setting
        return found

    def _fewest_vectors(self, streams: bool) -> int:
        """Return the index of the least value of `vectors` with which stores fill whole lines if
        they are non-temporal, or 0 if there is none."""
        many = np.asarray(AT_ONCE)
        whole = self._stores_whole_lines(np.full(len(many), int(streams)), many)
        return int(np.argmax(whole))

    def _stores_whole_lines(self, stores: IntArray, vectors: IntArray) -> BoolArray:
        """Return whether non-temporal stores of all results fill whole lines, shape (P,)."""
        found: BoolArray = np.ones(len(vectors), np.bool_)
        for view in self.group.results:
            run = vectors * self.lanes * view.dtype.bytes
            found &= stores_whole_lines(stores, run, self.target.line_bytes)
        return found

    def _rows_with_small_halo(self, usual: Mapping[str, int]) -> int:
        """Return the index of the default value of `tile_rows`, or of the next value with which
        tiles repeat few operations."""
        first = usual.get("tile_rows", 0)
        vectors = self.vector_values[usual["tile_vectors"]]
        for place, rows in enumerate(self.row_values[first:], start=first):
            regions = self.tiles.regions(0, rows, vectors)
            if regions.are_boxes and regions.recomputed <= MOST_RECOMPUTED:
                return place
        return first

    def _tasks(self, v: StencilSettings[int]) -> int:
        *outer, columns = self.tiles.extents(v.tile_rows, v.tile_vectors)
        if not outer:
            return -(-self.tiles.sizes[-1] // columns)
        return prod(-(-n // t) for n, t in zip(self.tiles.sizes, outer, strict=False))

    @cached_property
    def _outline(self) -> Outline:
        """The axes of the last stage, and the accesses of all stages in terms of them."""
        group, sizes = self.variants[0], self.tiles.sizes
        names = [loop.name for loop in group.last.spatial]
        found: dict[str, Access] = {}
        regions = TileRegions(group, (1,) * len(names))
        if not regions.are_boxes:
            regions = TileRegions(group, self.tiles.extents(self._least_rows, 1))
        private = {view.name for view in group.intermediates}
        for view in group.stages:
            dims = regions.dims[view.name]
            at = _axes_of(view, dims, names)
            inner = {loop.name: dim.extent for loop, dim in zip(view.spatial, dims, strict=True)}
            inner |= {loop.name: loop.extent for loop in view.reduce}
            tensors = {read.tensor for read in view.reads}
            windows = {tensor: windows_of(view, tensor, inner) for tensor in tensors}
            for read in view.reads:
                index = [i.substitute(at) for i in read.index]
                window = windows[read.tensor]
                one = access_of(read.tensor, read.dtype.bytes, index, names, window)
                if read.tensor in private:
                    one = replace(one, private_levels=len(names))
                if read.tensor not in group.more_results:
                    found.setdefault(read.tensor, one)
        own = [var(name) for name in names]
        written = (access_of(view.name, view.dtype.bytes, own, names) for view in group.results)
        outputs = tuple(replace(access, is_output=True) for access in written)
        return Outline(axes_of(zip(names, sizes, strict=True)), (*found.values(), *outputs))

    def plan(self, settings: IntArray) -> Plan:
        """Return the plan with the loops of the module docstring."""
        v = self.values(settings)
        *outer, column = range(len(self.tiles.sizes))
        parallel, wide = v.parallel > 0, v.tile_vectors * self.lanes
        rows = [axis for axis in outer if axis in self.tiles.tiled]
        once = rows[-1] if rows else -1
        levels = [
            *(Level(n, v.tile_rows if n in rows else 1, parallel, BLOCKS) for n in outer),
            Level(column, wide, parallel if self.tiles.divides_columns else False, BLOCKS),
            *(Level(n, v.rows_at_once if n == once else 1, role=STEPS) for n in rows),
            Level(column, v.vectors * self.lanes, role=STEPS),
            Level(column, self.lanes, role=BODY, kind=UNROLLED),
            *(Level(n, 1, role=BODY, kind=UNROLLED) for n in rows[-1:]),
            Level(column, 1, role=BODY, kind=VECTORIZED),
        ]
        stores = v.nontemporal_stores > 0
        return Plan(self._outline, tuple(levels), len(wide), nontemporal=stores)

    def leaves(self, settings: IntArray) -> Iterator[Leaf]:
        v = self.values(settings)
        choices = StencilChoices(
            v.tile_rows, v.tile_vectors, v.rows_at_once, v.vectors, v.inline, v.parallel > 0
        )
        return self.tiles.leaves(choices)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Emit the loops of a setting."""
        v = self.chosen(setting)
        writer.do(*(Inline(name) for name in self.inlined[v.inline]))
        regions = self.tiles.regions(v.inline, v.tile_rows, v.tile_vectors)
        tiles = TileWriter(writer, regions, self.lanes, v.vectors, v.rows_at_once)
        place, strip = tiles.write(is_cut=not (v.parallel and self.tiles.divides_columns))
        if v.parallel:
            writer.do(Parallel(strip or place))
        if v.nontemporal_stores:
            writer.do(*(Stream(view.name) for view in self.group.results))


def _axes_of(view: StageView, dims: Sequence[RegionDim], names: Sequence[str]) -> dict[str, Affine]:
    """Return the loops of a stage in terms of the axes of the last stage, which are `names`.
    Offsets are left out."""
    return {
        loop.name: var(names[dim.axis]) * dim.scale // dim.per if dim.axis >= 0 else affine(0)
        for loop, dim in zip(view.spatial, dims, strict=True)
    }
