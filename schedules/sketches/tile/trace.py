"""Writing down the trace of one setting of the tile stage: its loops in order, then its copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from ...plan import LoopLevel
from ...primitives import (
    CacheWrite,
    ComputeAt,
    Parallel,
    Partition,
    RFactor,
    SkipZeros,
    Split,
    Stream,
    TransformLayout,
    Unroll,
)
from ..analysis.stages import StageLoop
from ..writer import (
    BATCHES,
    BLOCKS,
    DEPTH,
    PARTS,
    SERIAL,
    STEPS,
    TILES,
    UNROLLED,
    WRITTEN_OUT,
    TraceWriter,
    called,
)
from .first_tile import merge_with_first_tile
from .loops import tile_axes
from .packing import Packing
from .prefetch import write_prefetches
from .stage import TileStage
from .tails import RemainderTiles


@dataclass
class TileTrace:
    """Writes the steps of the stage `k` with knob values `v`, tile sizes `s` (see `tile_sizes`) and
    the `levels` and `tails` of its plan: `buffer` is what holds its sums, `main` the loop of its
    reduction, `part` that over parts of it, `shared` the one that threads divide, `blocks` those
    over blocks, by the plain loops that they walk."""

    w: TraceWriter
    k: TileStage
    v: dict[str, int]
    s: dict[str, int]
    levels: list[LoopLevel]
    tails: Mapping[str, RemainderTiles]
    buffer: str = ""
    main: str = ""
    part: str = ""
    shared: str = ""
    blocks: dict[str, str] = field(default_factory=dict)

    @property
    def stage(self) -> str:
        return self.k.view.name

    def outside(self, loop: str) -> str:
        """What a spatial loop of the reduction's stage is called outside."""
        outer = self.k.epilogue.name if self.k.epilogue else self.stage
        return outer + loop[len(self.stage) :]

    def moved(self, loop: str) -> str:
        """What it is called once the stage is computed where it is used."""
        return next(f"{self.stage}.{x.dim}" for x in self.k.view.spatial if x.name == loop)

    def named(self, name: Callable[[str], str], *roles: str) -> list[LoopLevel]:
        """The levels for `roles`, all if there is none, of loops that are called so by now."""
        spatial = {loop.name for loop in self.k.view.spatial}

        def found(level: LoopLevel) -> LoopLevel:
            if level.role == PARTS:
                return level._replace(loop=self.part, step=1)
            if level.loop in spatial:
                return level._replace(loop=name(level.loop))
            is_main = level.loop == self.k.roles.main.name
            return level._replace(loop=self.main) if is_main else level

        return [found(level) for level in self.levels if not roles or level.role in roles]

    def write(self) -> None:
        k, v, w = self.k, self.v, self.w
        splits = (Split(self.outside(step.loop), step.factor) for step in k.view.axis_splits)
        w.do(*k.view.phase_steps, *splits)
        self._divide_reduction()
        ko, tiles, depth = self._with_epilogue() if k.epilogue else self._alone()
        columns = self.blocks[self.outside(k.roles.columns.name)]
        rows = [self.blocks[self.outside(loop.name)] for loop in k.roles.rows[:1]]
        packing = Packing(w, k, v, self.s, self.buffer)
        if v["prefetch"]:  # before operands are packed: from where they come
            write_prefetches(w, k, self.buffer, v, self.s, tiles, depth)
        around = v["skip_padding"] and v["copy_rows"]
        if around:  # before copies hide what is padding
            self._accumulate(tiles[-1])
            w.do(SkipZeros(f"{self.stage}.acc", depth[-1]))
        packing.write(columns, next(iter(rows), columns), ko)
        if not around:
            self._accumulate(tiles[-1])
            w.do(*[SkipZeros(f"{self.stage}.acc")] * v["skip_padding"])
        self._cut_tails(tiles)
        if v["unroll_reduction"] > 1 and k.step_distance > 1:
            self._cut_steps(*depth[-2:])
        if v["fuse_packing"]:
            merge_with_first_tile(w, k, v, self.s, depth)
        if v["nontemporal_stores"]:
            w.do(Stream(k.output))
        if self.shared:
            w.do(Parallel(self.shared))
        if v["split_reduction"] > 1:
            w.vectorise_writer(self.stage, k.lanes)

    def _accumulate(self, tile_loop: str) -> None:
        """Keep the sums of a tile in registers."""
        acc = f"{self.stage}.acc"
        self.w.do(CacheWrite(self.buffer, tile_loop, acc))
        if self.k.is_scattered:
            self.w.keep_last(acc, self.k.roles.columns.dim)

    def _divide_reduction(self) -> None:
        """Parts of the reduction that threads compute on their own, each with results of its own,
        which are added up at the end."""
        w, parts = self.w, self.v["split_reduction"]
        self.buffer, self.main = self.stage, self.k.roles.main.name
        if parts == 1:
            return
        self.part, self.main = w.split(self.main, self.k.roles.main.extent // parts)
        self.buffer = f"{self.stage}.parts"
        rank = len(self.k.view.spatial)
        w.do(RFactor(self.part, self.buffer))
        w.do(TransformLayout(self.buffer, (), ((rank, 0), *((d, 0) for d in range(rank)))))

    def _alone(self) -> tuple[str, list[str], list[str]]:
        """All loops of a stage that nothing is computed from in place. What is called the one over
        blocks of the reduction, those over tiles, and those of the reduction not written out."""
        made = self.w.arrange(self.named(self.outside), first=self._ragged(self.outside))
        self._share(made)
        return called(made, DEPTH)[0], called(made, TILES), called(made, STEPS)

    def _with_epilogue(self) -> tuple[str, list[str], list[str]]:
        """The same where the loops of an epilogue are outside. Tiles are finished one after the
        other; or whole blocks are, which are summed up over all of the reduction in a private
        buffer, a block of the reduction at a time, before the epilogue walks over them."""
        w, in_blocks = self.w, self.s["k_count"] > 1
        own = [loop.name for loop in (*reversed(self.k.roles.rows), self.k.roles.columns)]
        around = self.named(self.outside, BATCHES, BLOCKS)
        if in_blocks:
            around += [LoopLevel(self.outside(loop), role=TILES) for loop in own]
        else:
            walked = self.named(self.outside, TILES, WRITTEN_OUT)
            around += [x for x in walked if x.loop in map(self.outside, own)]
        made = w.arrange(around, first=self._ragged(self.outside))
        self._share(made)
        tiles = called(made, TILES)
        place = list(self.blocks.values())[-1] if in_blocks else tiles[-1]
        w.do(ComputeAt(self.stage, place, register=not in_blocks))
        if in_blocks:
            w.vectorise_loop(tiles[-1], self.k.lanes)
        elif self.k.is_scattered:
            w.keep_last(self.stage, self.k.roles.columns.dim)
        left = [loop.var for loop in w.own_loops(self.stage, inside=place) if not loop.reduce]
        kind, moved = SERIAL if in_blocks else UNROLLED, set(map(self.moved, own))
        inside = [LoopLevel(loop, 1, kind) for loop in left if loop not in moved]
        inside += self.named(self.moved, DEPTH, *[TILES] * in_blocks, STEPS, WRITTEN_OUT)
        made = w.arrange(inside, first=[self.main, *self._ragged(self.moved)])
        return called(made, DEPTH)[0], called(made, TILES) or tiles, called(made, STEPS)

    def _ragged(self, name: Callable[[str], str]) -> list[str]:
        """The loops that tiles are cut from, in the order in which their ends are tested."""
        return [name(loop.name) for loop, _, _ in tile_axes(self.k, self.s)]

    def _share(self, made: list[tuple[LoopLevel, str]]) -> None:
        """Make one of the loops that threads divide, and note where blocks along each loop are."""
        self.shared = self.w.fuse_all([name for level, name in made if level.is_parallel])
        self.blocks = {
            level.loop: self.shared if level.is_parallel else name
            for level, name in made
            if level.role == BLOCKS
        }

    def _cut_tails(self, tiles: list[str]) -> None:
        """Code of its own for tiles that touch padding, for incomplete tiles of rows, and of
        columns too if asked for."""
        in_order = tiles[1:] if self.v["row_tiles_innermost"] else tiles[:-1]
        names = [*reversed(in_order), tiles[0] if self.v["row_tiles_innermost"] else tiles[-1]]
        skips = self.v["skip_padding"] and not self.v["copy_rows"]
        border = self.k.border if skips else None
        for axis, name in zip(tile_axes(self.k, self.s), names, strict=True):
            loop, tile, _ = axis
            if border and loop.name in border.conds:
                self._cut(*axis, name, border.clear(loop.name, tile))
            elif self.tails[loop.name].is_peeled[0]:
                self._cut(*axis, name)

    def _cut(
        self, loop: StageLoop, tile: int, per: int, name: str, clear: tuple[int, int] | None = None
    ) -> None:
        """Give the last, incomplete tile along `loop`, of the tiles `name`, code of its own, and
        those that are not `clear` of padding: in the last of several blocks; or in all, which are
        alike then, where threads divide them or padding is cut."""
        w, tail = self.w, self.tails[loop.name]
        whole, others = loop.extent // tile, int(tail.full_block_tiles[0])
        copies = w.copies(name)
        if tail.in_last_block_only[0] and not clear:
            blocks = w.copies(self.blocks[self.outside(loop.name)])
            seconds = [w.partition(copy, others // per) for copy in blocks]
            copies = [second[own] for second in seconds for own in copies if own in second]
        start, stop = clear or (0, whole)
        for copy in copies:
            size, rest = w.loop(copy).extent, copy
            for at, end in pairwise(sorted({0, start, stop - others, whole - others, size})):
                part, rest = rest, w.partition(rest, end - at)[rest] if end < size else ""
                if clear and end - at > 1 and not start <= at < stop - others:
                    w.do(Unroll(part))

    def _cut_steps(self, whole: str, step: str) -> None:
        """Where steps that are written out together end early, those that do and those that do not
        have code of their own."""
        w, distance = self.w, self.k.step_distance
        count, rest = divmod(self.k.roles.main.extent, distance * self.v["unroll_reduction"])
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
