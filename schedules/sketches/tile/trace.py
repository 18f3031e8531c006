"""Emit the trace of one setting of the tile sketch: first the loops in order, then the copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from ...plan import LoopLevel
from ...primitives import (
    CacheWrite,
    ComputeAt,
    Parallel,
    Partition,
    PrefetchStores,
    RFactor,
    SkipBlocks,
    SkipZeros,
    Stream,
    TransformLayout,
    Unroll,
)
from ..writer import (
    BATCHES,
    BLOCKS,
    BODY,
    DEPTH,
    PARTS,
    SERIAL,
    STEPS,
    TILES,
    UNROLLED,
    TraceWriter,
    called,
)
from .packing import Packing, fuse_packing
from .prefetch import write_prefetches
from .remainders import RemainderTiles
from .settings import TileBlocks, TileSettings
from .stage import TileStage

Names = Mapping[str, str]
"""Names of the stage's loops in a nest, by their names in the stage view."""


@dataclass
class TileTrace:
    """Emits the trace steps of settings `t`, whose plan has `levels` and `remainders`."""

    w: TraceWriter
    t: TileSettings[int]
    levels: list[LoopLevel]
    remainders: Mapping[str, RemainderTiles]
    buffer: str = ""
    """The tensor of the sums."""
    main: str = ""
    """The main loop of the reduction."""
    part: str = ""
    """The loop over parts of the reduction."""
    shared: str = ""
    """The loop that threads divide."""
    outer: Names = field(default_factory=dict)
    """The loops of the nest that contains the tiles."""
    blocks: dict[str, str] = field(default_factory=dict)
    """The loops over blocks, by the loops that they were split from."""

    @property
    def k(self) -> TileStage:
        return self.t.stage

    @property
    def stage(self) -> str:
        return self.k.view.name

    def named(self, names: Names, *roles: str) -> list[LoopLevel]:
        """Return the levels with one of `roles`, or all levels if no role is given. Their loops
        have the names of a nest, or "" for missing loops."""
        spatial = {loop.name for loop in self.k.view.spatial}

        def found(level: LoopLevel) -> LoopLevel:
            if level.role == PARTS:
                return level._replace(loop=self.part, step=1)
            if level.loop in spatial:
                return level._replace(loop=names.get(level.loop, ""))
            is_main = level.loop == self.k.roles.main.name
            return level._replace(loop=self.main) if is_main else level

        return [found(level) for level in self.levels if not roles or level.role in roles]

    def write(self) -> None:
        k, t, w = self.k, self.t, self.w
        self._divide_axes()
        self._divide_reduction()
        ko, tiles, depth = self._with_epilogue() if k.epilogue else self._alone()
        columns = self.blocks[self.outer[k.roles.columns.name]]
        rows = [self.blocks[self.outer[loop.name]] for loop in k.roles.rows[:1]]
        packing, sums = Packing(w, t, self.buffer), f"{self.stage}.acc"
        *_, inner_tile = tiles.values()
        if t.prefetch:  # before packing: prefetches refer to the original operands
            write_prefetches(w, t, self.buffer, tiles, depth)
        skips_early = bool(t.skips_around or t.skips_blocks)
        if skips_early:  # before packing: copies hide the padding conditions
            self._accumulate(sums, inner_tile)
            tested = depth[-2 if t.skips_several else -1]
            w.do(SkipBlocks(sums, tested) if t.skips_blocks else SkipZeros(sums, tested))
        packing.write(columns, next(iter(rows), columns), ko)
        if not skips_early:
            self._accumulate(sums, inner_tile)
            w.do(*[SkipZeros(sums)] * t.skip_padding)
        if t.prefetch_stores:
            line = k.target.line_bytes // k.stored.dtype.bytes
            w.do(PrefetchStores(k.output, inner_tile, line))
        self._peel_tiles(tiles)
        if t.together > k.step_distance > 1:
            self._peel_steps(*depth[-2:])
        if t.fuse_packing:
            fuse_packing(packing, depth)
        if t.nontemporal_stores:
            w.do(Stream(k.output))
        if self.shared:
            w.do(Parallel(self.shared))
        if t.splits:
            w.vectorise_writer(self.stage, k.lanes)

    def _divide_axes(self) -> None:
        """Split axes as in the stage view, in the nest that contains the tiles."""
        w, view = self.w, self.k.view
        plain = zip(w.spatial_loops(view.name), w.spatial_loops(self.k.output), strict=True)
        names = dict(plain)
        w.do(*view.phase_steps)
        for step in view.axis_splits:  # a later one may split a loop of an earlier one
            names[f"{step.loop}o"], names[f"{step.loop}i"] = w.split(names[step.loop], step.factor)
        own = (loop.name for loop in view.spatial)
        self.outer = dict(zip(own, w.spatial_loops(self.k.output), strict=True))

    def _accumulate(self, sums: str, tile_loop: str) -> None:
        """Keep the sums of a tile in registers."""
        self.w.do(CacheWrite(self.buffer, tile_loop, sums))
        if self.k.is_scattered:
            self.w.keep_last(sums, self.k.roles.columns.dim)

    def _divide_reduction(self) -> None:
        """Split the reduction into parts that threads compute into separate results."""
        w, parts = self.w, self.t.split_reduction
        self.buffer, self.main = self.stage, self.k.roles.main.name
        if parts == 1:
            return
        self.part, self.main = w.split(self.main, self.k.roles.main.extent // parts)
        self.buffer = f"{self.stage}.parts"
        rank = len(self.k.view.spatial)
        w.do(RFactor(self.part, self.buffer))
        w.do(TransformLayout(self.buffer, (), ((rank, 0), *((d, 0) for d in range(rank)))))

    def _alone(self) -> tuple[str, Names, list[str]]:
        """Arrange all loops of a stage without an epilogue. Return the loop over blocks of the
        reduction, the loops over tiles, and the loops of the reduction that are not unrolled."""
        made = self.w.arrange(self.named(self.outer), first=self._ragged(self.outer))
        self._share(made)
        return called(made, DEPTH)[0], self._tiles(made, self.outer), called(made, STEPS)

    def _with_epilogue(self) -> tuple[str, Names, list[str]]:
        """Arrange the loops of a stage inside the loops of its epilogue. Return the loop over
        blocks of the reduction, the loops over tiles, and the loops of the reduction that are not
        unrolled.

        If there is one block of the reduction, each tile is finished before the next. Otherwise a
        block of tiles is summed in a private buffer, one block of the reduction at a time. Then the
        epilogue iterates over this block of tiles.
        """
        w, in_blocks = self.w, self.t.k_count > 1
        own = [loop.name for loop in (*reversed(self.k.roles.rows), self.k.roles.columns)]
        around, tiled = self.named(self.outer, BATCHES, BLOCKS), [self.outer[loop] for loop in own]
        if in_blocks:
            around += [LoopLevel(loop, role=TILES) for loop in tiled]
        else:
            walked = self.named(self.outer, TILES, BODY)
            around += [x for x in walked if x.loop in tiled]
        made = w.arrange(around, first=self._ragged(self.outer))
        self._share(made)
        tiles = self._tiles(made, self.outer)
        *_, inner_tile = tiles.values()
        *_, inner_block = self.blocks.values()
        place = inner_block if in_blocks else inner_tile
        plain = {name: dim for dim, name in enumerate(w.spatial_loops(self.stage))}
        made_of = w.remake(ComputeAt(self.stage, place, register=not in_blocks))
        by_dim = {plain[old]: new for old, (new,) in made_of.items()}
        moved = {x.name: by_dim[x.dim] for x in self.k.view.spatial if x.dim in by_dim}
        if in_blocks:
            w.vectorise_loop(inner_tile, self.k.lanes)
        elif self.k.is_scattered:
            w.keep_last(self.stage, self.k.roles.columns.dim)
        left = [loop.var for loop in w.own_loops(self.stage, inside=place) if not loop.reduce]
        kind, of_tiles = SERIAL if in_blocks else UNROLLED, {moved.get(loop) for loop in own}
        inside = [LoopLevel(loop, 1, kind) for loop in left if loop not in of_tiles]
        inside += self.named(moved, DEPTH, *[TILES] * in_blocks, STEPS, BODY)
        made = w.arrange(inside, first=[self.main, *self._ragged(moved)])
        tiles = self._tiles(made, moved) if in_blocks else tiles
        return called(made, DEPTH)[0], tiles, called(made, STEPS)

    def _ragged(self, names: Names) -> list[str]:
        """Return the tiled loops, in the order in which their ends are tested."""
        return [names.get(axis.name, "") for axis in self.t.tiled_axes]

    def _share(self, made: list[tuple[LoopLevel, str]]) -> None:
        """Fuse the loops that threads divide into one, and record the loop over blocks along each
        axis."""
        self.shared = self.w.fuse_all([name for level, name in made if level.is_parallel])
        self.blocks = {
            level.loop: self.shared if level.is_parallel else name
            for level, name in made
            if level.role == BLOCKS
        }

    def _tiles(self, made: list[tuple[LoopLevel, str]], names: Names) -> Names:
        """Return the loops over tiles by axis, outermost first."""
        axis_of = {names[x.name]: x.name for x in self.t.tiled_axes if x.name in names}
        return {axis_of[level.loop]: name for level, name in made if level.role == TILES}

    def _peel_tiles(self, tiles: Names) -> None:
        """Peel the tiles that touch padding if `skip_padding` is set, and the incomplete tiles if
        `peel_remainders` is set."""
        border = self.k.border if self.t.skips_in_tiles else None
        for axis in self.t.tiled_axes:
            if border and axis.name in border.conds:
                self._cut(axis, tiles[axis.name], border.clear(axis.name, axis.size))
            elif self.remainders[axis.name].is_peeled[0]:
                self._cut(axis, tiles[axis.name])

    def _cut(self, axis: TileBlocks[int], name: str, clear: tuple[int, int] | None = None) -> None:
        """Peel tiles from the tile loop `name` of an axis: the remainder tile, and the tiles
        outside the range `clear` of tiles without padding.

        If threads divide the blocks or padding is peeled, tiles of all blocks are peeled, otherwise
        only those of the last block.
        """
        w, remainder = self.w, self.remainders[axis.name]
        whole, others = axis.extent // axis.size, int(remainder.full_block_tiles[0])
        copies = w.copies(name)
        if remainder.in_last_block_only[0] and not clear:
            blocks = w.copies(self.blocks[self.outer[axis.name]])
            seconds = [w.partition(copy, others // axis.per_block) for copy in blocks]
            copies = [second[own] for second in seconds for own in copies if own in second]
        start, stop = clear or (0, whole)
        for copy in copies:
            size, rest = w.loop(copy).extent, copy
            for at, end in pairwise(sorted({0, start, stop - others, whole - others, size})):
                part, rest = rest, w.partition(rest, end - at)[rest] if end < size else ""
                if clear and end - at > 1 and not start <= at < stop - others:
                    w.do(Unroll(part))

    def _peel_steps(self, whole: str, step: str) -> None:
        """Peel the last iteration of the reduction if it has fewer steps than are unrolled
        together."""
        w, distance = self.w, self.k.step_distance
        count, rest = divmod(self.k.roles.main.extent, self.t.together)
        if not rest:
            return
        for name in w.copies(whole):
            last = [own for own in w.copies(step) if w.is_inside(own, name)]
            if count:
                second = w.partition(name, count)
                last = [second[own] for own in last]
            for own in last:
                if 1 <= rest % distance < w.loop(own).extent:
                    w.do(Partition(own, rest % distance))
