"""The steps that create the loops of tiles of stencils."""

from __future__ import annotations

from dataclasses import dataclass

from ...nest.finding import names_in
from ...plan import LoopLevel
from ...primitives import CacheWrite, ComputeAt, Extend, Merge, Unroll, Vectorize
from ..analysis.stages import StageView
from ..vectors import parts_of
from ..writer import BLOCKS, TraceWriter, called
from .halos import TileRegions, extents_of


@dataclass(frozen=True)
class TileWriter:
    """Emits the loops of tiles with the given regions."""

    writer: TraceWriter
    regions: TileRegions
    lanes: int
    vectors: int
    """Most vectors per iteration."""
    rows_at_once: int
    """Rows of a result per iteration."""

    def write(self, *, is_cut: bool) -> tuple[str, str]:
        """Emit the loops. Return the loop over the tiles of a strip, and the loop over strips or
        "". If `is_cut`, a shorter tile at the end of a strip is separate code."""
        w, regions = self.writer, self.regions
        place, strip, own = self._tiles()
        full, count = regions.full_tiles, w.loop(place).extent
        moved = w.partition(place, full) if is_cut and 0 < full < count else {}
        for view in regions.group.stages:
            taps = [loop.name for loop in view.reduce]
            self._stage(view, own[view.name], taps, regions.row(view))
            if moved:
                loops = [moved[name] for name in own[view.name]]
                short = regions.last_row(view)
                self._stage(view, loops, [moved[name] for name in taps], short)
        return place, strip

    def _tiles(self) -> tuple[str, str, dict[str, list[str]]]:
        """Emit the loops over tiles, and move all stages into them. Return the loop over the tiles
        of a strip, the loop over strips or "", and the loops of each stage inside a tile."""
        w, group = self.writer, self.regions.group
        blocks, own = dict[str, list[str]](), dict[str, list[str]]()
        for view in group.results:
            blocks[view.name], own[view.name] = self._divided(view)
        *strips, place = blocks[group.last.name]
        for name in reversed(group.more_results):
            for one, other in zip(blocks[name], blocks[group.last.name], strict=True):
                w.do(Merge(one, other))
        strip = w.fuse_all(strips)
        for view in reversed(group.intermediates):
            moved = w.remake(ComputeAt(view.name, place))
            own[view.name] = [new for found in moved.values() for new in found]
        return place, strip, own

    def _divided(self, view: StageView) -> tuple[list[str], list[str]]:
        """Emit the loops of a result. Return its loops over tiles, which are as many as those of
        the longest result, and its loops inside a tile."""
        w, tile = self.writer, self.regions.extents
        loops = w.spatial_loops(view.name)
        for loop, own, extent in zip(
            loops, view.spatial, extents_of(self.regions.group), strict=True
        ):
            if own.extent < extent:
                w.do(Extend(loop, extent))
        outer = [LoopLevel(x, step, role=BLOCKS) for x, step in zip(loops, tile, strict=True)]
        inner = [LoopLevel(x) for x, t in zip(loops[:-1], tile[:-1], strict=True) if t > 1]
        made = w.arrange([*outer, *inner, LoopLevel(loops[-1])])
        return called(made, BLOCKS), called(made, "")

    def _stage(self, view: StageView, loops: list[str], taps: list[str], extent: int) -> None:
        """Emit the loops of one stage inside a tile. `loops` are its spatial loops there and `taps`
        those of its window. `extent` elements of its row are needed."""
        w = self.writer
        if self.regions.row(view) == 1:  # there is no loop over a row of one element
            self._accumulate(view, loops[-1] if loops else "")
            return
        *rows, column = loops
        inside = [*taps]
        if self.regions.group.is_result(view) and self.rows_at_once > 1 and rows:
            outer, row = w.split(rows[-1], self.rows_at_once)
            w.reorder(outer, column, row)
            inside.insert(0, row)
        parts = parts_of(extent, self.lanes, self.vectors, cut=True)
        names = [(column, inside)]
        if len(parts) > 1:
            moved = w.partition(column, parts[0][0])
            names.append((moved[column], [moved[name] for name in inside]))
        for (name, within), (_, width, copies) in zip(names, parts, strict=True):
            step, lanes = w.split(name, width)
            w.reorder(step, *within, lanes)
            if copies > 1:
                step, several = w.split(step, copies)
                w.do(Unroll(several))
            w.do(*map(Unroll, within))
            if width > 1:
                w.do(Vectorize(lanes))
            self._accumulate(view, step)

    def _accumulate(self, view: StageView, step: str) -> None:
        """Keep the results of a reduction in registers inside loop `step`, if there is one."""
        if not view.is_reduction or not step:
            return
        # Separate code for shorter tiles has a buffer of its own.
        (buffer,) = {leaf.buffer for leaf in self.writer.loop(step).inside.leaves}
        name = f"{buffer}.acc"
        while name in names_in(self.writer.nest):
            name += "'"
        self.writer.do(CacheWrite(buffer, step, name))
