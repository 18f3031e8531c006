"""Writing down the trace of one setting of the tile stage, step by step."""

from __future__ import annotations

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
    Vectorize,
)
from ..analysis import Loop
from ..writer import TraceWriter
from .first_tile import merge_with_first_tile
from .packing import Packing
from .prefetch import write_prefetches
from .stage import TileStage


def write_tile_trace(
    writer: TraceWriter, stage: TileStage, v: dict[str, int], s: dict[str, int]
) -> None:
    """Add the steps of the stage with knob values `v` and tile sizes `s` (see TileStage)."""
    _TileTrace(writer, stage, v, s).write()


class _TileTrace:
    def __init__(
        self, writer: TraceWriter, stage: TileStage, v: dict[str, int], s: dict[str, int]
    ) -> None:
        self.w = writer
        self.k = stage
        self.v = v
        self.s = s
        self.stage = stage.view.name
        self.buffer = self.stage
        self.main = stage.roles.main.name
        self.outer = stage.epilogue.name if stage.epilogue else self.stage
        self.steps_apart: list[str] = []

    def rename(self, loop: str) -> str:
        """What a spatial loop of the reduction's stage is called outside."""
        return self.outer + loop[len(self.stage) :]

    def write(self) -> None:
        k, v, s, w = self.k, self.v, self.s, self.w
        splits = (Split(self.rename(step.loop), step.factor) for step in k.view.presplit)
        w.do(*k.view.presolve, *splits)
        batch = [*self._divide_reduction(), *(self.rename(loop.name) for loop in k.roles.batch)]
        blocks, rests = self._split_blocks()
        ko, depth, unrolled = self._split_reduction()
        order = [blocks[name] for name in k.roles.block_loops(bool(v["rows_outside"]))]
        if k.epilogue and s["k_count"] > 1:
            tiles, joined = self._whole_blocks(batch, order, rests, [ko, *depth], unrolled)
        else:
            tiles, joined = self._single_tiles(batch, order, rests, ko, depth, unrolled)
        place = {name: joined or name for name in (*batch, *order)}
        place |= {name: name for name in order[v["parallel"] :]}
        columns = blocks[k.roles.columns.name]
        rows = [name for name in order if name != columns] or [columns]
        packing = Packing(w, k, v, s, self.buffer)
        if v["prefetch"]:  # before operands are packed: from where they come
            around = [joined or name for name in batch]
            write_prefetches(w, k, self.buffer, v, self.s, tiles, depth, around)
        if v["skip_padding"] and v["copy_rows"]:  # before copies hide what is padding
            self._accumulate(tiles[-1])
            w.do(SkipZeros(f"{self.stage}.acc", depth[-1]))
            packing.write(place[columns], place[rows[-1]], ko)
        else:
            packing.write(place[columns], place[rows[-1]], ko)
            self._accumulate(tiles[-1])
            if v["skip_padding"]:
                w.do(SkipZeros(f"{self.stage}.acc"))
        fused = (*batch, *order[: v["parallel"]]) if joined else ()
        self._cut_tails(blocks, tiles, fused)
        if self.steps_apart:
            self._cut_steps(*self.steps_apart)
        if v["pack_on_the_way"]:
            merge_with_first_tile(w, k, v, s, depth)
        if v["stream"]:
            w.do(Stream(k.output))
        if joined:
            w.do(Parallel(joined))
        if v["split_k"] > 1:
            w.vectorise_writer(self.stage, k.lanes)

    def _accumulate(self, tile_loop: str) -> None:
        """Keep the sums of a tile in registers."""
        acc = f"{self.stage}.acc"
        self.w.do(CacheWrite(self.buffer, tile_loop, acc))
        if self.k.is_scattered:
            self._columns_last(acc)

    def _divide_reduction(self) -> list[str]:
        """Parts of the reduction that threads compute on their own, each with results of its own,
        which are added up at the end: the loop over parts, if there are any."""
        w, parts = self.w, self.v["split_k"]
        if parts == 1:
            return []
        part, self.main = w.split(self.main, self.k.roles.main.extent // parts)
        self.buffer = f"{self.stage}.parts"
        rank = len(self.k.view.spatial)
        w.do(RFactor(part, self.buffer))
        w.do(TransformLayout(self.buffer, (), ((rank, 0), *((d, 0) for d in range(rank)))))
        return [part]

    def _axes(self) -> list[tuple[Loop, int, int]]:
        """Rows, innermost first, then columns: the loop, its tile, and tiles a block."""
        roles, s = self.k.roles, self.s
        tiles = ((s["mr"], s["row_per"]), (s["mr2"], s["row2_per"]))
        rows = [(loop, *sizes) for loop, sizes in zip(roles.rows, tiles, strict=False)]
        return [*rows, (roles.columns, s["nr"], s["col_per"])]

    def _split_blocks(self) -> tuple[dict[str, str], list[str]]:
        """Block loops by axis, and what is left of rows and columns inside a block."""
        blocks = {loop.name: self.rename(loop.name) for loop in self.k.roles.outer_rows}
        rests = []
        for loop, tile, per in self._axes():
            blocks[loop.name], rest = self.w.split(self.rename(loop.name), tile * per)
            rests.append(rest)
        return blocks, rests

    def _split_reduction(self) -> tuple[str, list[str], list[str]]:
        """The loop over blocks of the reduction, the loops inside it, and the unrolled ones."""
        k, w = self.k, self.w
        ko, ki = w.split(self.main, self.s["kc"])
        written_out = [loop.name for loop in k.short_taps()[: self.v["tap_unroll"]]]
        depth = [*(loop.name for loop in k.roles.taps if loop.name not in written_out), ki]
        unrolled = list(reversed(written_out))
        if self.v["unroll"] > 1 and k.apart > 1:
            whole, rest = w.split(ki, k.apart * self.v["unroll"])
            ku, step = w.split(rest, k.apart)
            depth[-1:] = self.steps_apart = [whole, step]
            unrolled.insert(0, ku)
        elif self.v["unroll"] > 1:
            depth[-1], ku = w.split(ki, self.v["unroll"])
            unrolled.insert(0, ku)
        if k.lane_step > 1:  # taps along the lanes share vectors: next to each other
            unrolled.reverse()
        return ko, depth, unrolled

    def _split_tiles(self, rests: list[str]) -> tuple[list[str], list[str]]:
        """Loops over tiles in the order asked for, and the loops of one tile, lanes last."""
        w = self.w
        tiles: list[str] = []
        inner: list[str] = []
        for (_, tile, _), rest in zip(self._axes()[:-1], rests[:-1], strict=True):
            outer, within = w.split(rest, tile)
            tiles.insert(0, outer)
            inner.insert(0, within)
        column_tile, rest = w.split(rests[-1], self.s["nr"])
        vectors, lanes = w.split(rest, self.k.lanes)
        tiles = [column_tile, *tiles] if self.v["row_tiles_inside"] else [*tiles, column_tile]
        return tiles, [*inner, vectors, lanes]

    def _single_tiles(
        self,
        batch: list[str],
        order: list[str],
        rests: list[str],
        ko: str,
        depth: list[str],
        unrolled: list[str],
    ) -> tuple[list[str], str]:
        """Tiles that are finished one after the other, by an epilogue if there is one."""
        w, epilogue = self.w, self.k.epilogue
        tiles, inner = self._split_tiles(rests)
        if epilogue:
            w.reorder(*self._outside(batch, order), *tiles, *inner)
        else:
            w.reorder(*self._outside(batch, order, ko), *tiles, *depth, *unrolled, *inner)
        joined = self._fuse(batch, order)
        if epilogue:
            self._compute_tile(tiles[-1], [ko, *depth], unrolled)
        w.do(Vectorize(inner[-1]), *(Unroll(name) for name in inner[:-1]))
        if not epilogue:
            w.do(*(Unroll(name) for name in unrolled))
        return tiles, joined

    def _whole_blocks(
        self,
        batch: list[str],
        order: list[str],
        rests: list[str],
        depth: list[str],
        unrolled: list[str],
    ) -> tuple[list[str], str]:
        """Blocks that are summed up over all of the reduction in a private buffer, a block of the
        reduction at a time, before the epilogue walks over them."""
        w = self.w
        rows = list(reversed(rests[:-1]))
        w.reorder(*self._outside(batch, order), *rows, rests[-1])
        joined = self._fuse(batch, order)
        last = order[-1]
        place = joined if last in (*batch, *order[: self.v["parallel"]]) and joined else last
        w.do(ComputeAt(self.stage, place))
        w.vectorise_loop(rests[-1], self.k.lanes)
        own = {loop.var for loop in w.own_loops(self.stage, inside=place) if not loop.reduce}
        names = [f"{self.stage}.{loop.dim}" for loop, _, _ in self._axes()]
        spare = sorted(own - set(names))
        tiles, inner = self._split_tiles(names)
        w.reorder(*spare, depth[0], *tiles, *depth[1:], *unrolled, *inner)
        w.do(Vectorize(inner[-1]), *(Unroll(name) for name in (*inner[:-1], *unrolled)))
        return tiles, joined

    def _cut_tails(self, blocks: dict[str, str], tiles: list[str], fused: tuple[str, ...]) -> None:
        """Code of its own for incomplete tiles of rows, and of columns too if asked for."""
        axes = self._axes()
        in_order = tiles[1:] if self.v["row_tiles_inside"] else tiles[:-1]
        names = [*reversed(in_order), tiles[0] if self.v["row_tiles_inside"] else tiles[-1]]
        skips = self.v["skip_padding"] and not self.v["copy_rows"]
        border = self.k.border if skips else None
        count = {0: 0, 1: len(axes) - 1, 2: len(axes)}[self.v["tails"]]
        for n, ((loop, tile, per), name) in enumerate(zip(axes, names, strict=True)):
            if n == 0 and border and border.rows:
                self._cut_border(name, border.edges(tile), loop.extent // tile)
            elif n == len(axes) - 1 and border and border.lane_conds:
                self._cut_columns(name, border.lane_edges(tile), loop.extent // tile)
            elif n < count:
                self._cut(loop, blocks[loop.name], name, tile, per, fused)

    def _cut_steps(self, whole: str, step: str) -> None:
        """Where steps that are written out together end early, those that do and those that do not
        have code of their own."""
        w, apart = self.w, self.k.apart
        count, rest = divmod(self.k.roles.main.extent, apart * self.v["unroll"])
        if not rest:
            return
        for name in w.copies(whole):
            last = [own for own in w.copies(step) if w.is_inside(own, name)]
            if count:
                second = w.partition(name, count)
                last = [second[own] for own in last]
            for own in last:
                self._partition(own, rest % apart)

    def _cut_border(self, tile_loop: str, edges: tuple[int, int, int], whole: int) -> None:
        """Give tiles that touch padding, and one behind `whole` ones that is incomplete, code of
        their own."""
        w = self.w
        start, stop, count = edges
        cuts = sorted({0, start, stop, whole} - {count})
        name = tile_loop
        for at, end in zip(cuts, [*cuts[1:], count], strict=True):
            rest = w.partition(name, end - at)[name] if end < count else ""
            if end - at > 1 and not start <= at < stop:
                w.do(Unroll(name))
            name = rest

    def _cut_columns(self, tile_loop: str, edges: tuple[int, int, int], whole: int) -> None:
        """The same for columns, inside each copy of the tiles of rows. Blocks are alike: the first
        and the last tiles of each stand apart."""
        start, stop, count = edges
        before = count - self.s["col_per"]  # tiles in other blocks than the last
        edges = (start, stop - before, self.s["col_per"])
        for copy in self.w.copies(tile_loop):
            self._cut_border(copy, edges, whole - before)

    def _divided(self, batch: list[str], order: list[str]) -> list[str]:
        """The loops that threads divide. Each thread gets a run of iterations, so batches that
        differ in length alternate."""
        blocks = order[: self.v["parallel"]]
        uneven = self.k.is_uneven and self.k.target.threads > 1
        return [*blocks, *batch] if uneven else [*batch, *blocks]

    def _outside(self, batch: list[str], order: list[str], ko: str = "") -> list[str]:
        """The loops around blocks. Those over blocks of the reduction stand inside the first block
        loop unless that is divided."""
        divided, first = self._divided(batch, order), self.v["parallel"]
        inside = order[first:]
        if ko:
            inside.insert(1 if first == 0 else 0, ko)
        return [*divided, *inside]

    def _fuse(self, batch: list[str], order: list[str]) -> str:
        """One loop of those that are divided among threads; "" where none are."""
        if self.k.target.threads == 1:
            return ""
        joined = ""
        for name in self._divided(batch, order):
            joined = self.w.fuse(joined, name) if joined else name
        return joined

    def _compute_tile(self, tile_loop: str, depth: list[str], unrolled: list[str]) -> None:
        """The reduction of one tile, inside the loops of the stage that uses it."""
        w, roles = self.w, self.k.roles
        w.do(ComputeAt(self.stage, tile_loop, register=True))
        if self.k.is_scattered:
            self._columns_last(self.stage)
        inner: list[str] = []
        for loop in (*reversed(roles.rows), roles.columns):
            name = f"{self.stage}.{loop.dim}"
            if w.has(name):
                inner.append(name)
        column = f"{self.stage}.{roles.columns.dim}"
        spare = [
            loop.var
            for loop in w.own_loops(self.stage)
            if loop.var.startswith(f"{self.stage}.") and not loop.reduce and loop.var not in inner
        ]
        if column in inner:
            outer, lanes = w.split(column, self.k.lanes)
            inner[-1:] = [outer, lanes]
            w.reorder(*spare, *depth, *unrolled, *inner)
            w.do(Vectorize(lanes), *(Unroll(name) for name in inner[:-1]))
        else:
            w.reorder(*spare, *depth, *unrolled, *inner)
            w.do(*(Unroll(name) for name in inner))
        w.do(*(Unroll(name) for name in (*unrolled, *spare)))

    def _columns_last(self, registers: str) -> None:
        """Keep sums of a tile as vectors of columns, though the result is written otherwise."""
        view, columns = self.k.view, self.k.roles.columns
        others = [(d, 0) for d in range(len(view.shape)) if d != columns.dim]
        self.w.do(TransformLayout(registers, (), (*others, (columns.dim, 0))))

    def _cut(
        self, loop: Loop, block: str, tile_loop: str, tile: int, per: int, fused: tuple[str, ...]
    ) -> None:
        """Give the last, incomplete tile along `loop` code of its own."""
        w = self.w
        if loop.extent % tile == 0:
            return
        whole_blocks, rest = divmod(loop.extent, tile * per)
        if -(-loop.extent // (tile * per)) == 1:
            for name in w.copies(tile_loop):
                self._partition(name, loop.extent // tile)
        elif block not in fused:
            for name in w.copies(block):
                second = w.partition(name, whole_blocks)
                for inner in w.copies(tile_loop):
                    if inner in second:
                        self._partition(second[inner], rest // tile)
        elif 2 * (rest // tile) >= per:  # tiles that are whole in the last block are so in all
            for name in w.copies(tile_loop):
                self._partition(name, rest // tile)

    def _partition(self, loop: str, at: int) -> None:
        if 1 <= at < self.w.loop(loop).extent:
            self.w.do(Partition(loop, at))
