"""Writing down the trace of one setting of the tile sketch, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    Parallel,
    Partition,
    TransformLayout,
    Unroll,
    Vectorize,
)
from .analysis import Loop, Read
from .writer import TraceWriter

if TYPE_CHECKING:
    from .tile import TileSketch


def write_tile_trace(
    writer: TraceWriter, sketch: TileSketch, v: dict[str, int], s: dict[str, int]
) -> None:
    """Add the steps of the sketch with knob values `v` and tile sizes `s` (see TileSketch)."""
    _TileTrace(writer, sketch, v, s).write()


class _TileTrace:
    def __init__(
        self, writer: TraceWriter, sketch: TileSketch, v: dict[str, int], s: dict[str, int]
    ) -> None:
        self.w = writer
        self.k = sketch
        self.v = v
        self.s = s
        self.stage = sketch.view.name
        self.outer = sketch.epilogue.name if sketch.epilogue else self.stage

    def rename(self, loop: str) -> str:
        """What a spatial loop of the reduction's stage is called outside."""
        return self.outer + loop[len(self.stage) :]

    def write(self) -> None:
        k, v, s, w = self.k, self.v, self.s, self.w
        roles = k.roles
        w.do(*k.outer_presplit())
        column_block, rest = w.split(self.rename(roles.columns.name), s["nr"] * s["col_per"])
        column_tile, rest = w.split(rest, s["nr"])
        vectors, lanes = w.split(rest, k.lanes)
        blocks = {roles.columns.name: column_block}
        blocks |= {loop.name: self.rename(loop.name) for loop in roles.outer_rows}
        row_tiles: list[str] = []
        row_inner: list[str] = []
        for loop, key in zip(roles.rows, ("row", "row2"), strict=False):
            tile = s["mr" if key == "row" else "mr2"]
            blocks[loop.name], rest = w.split(self.rename(loop.name), tile * s[f"{key}_per"])
            tile_loop, inner = w.split(rest, tile)
            row_tiles.insert(0, tile_loop)
            row_inner.insert(0, inner)
        ko, ki = w.split(roles.main.name, s["kc"])
        written_out = [loop.name for loop in k.short_taps()[: v["tap_unroll"]]]
        depth = [*(loop.name for loop in roles.taps if loop.name not in written_out), ki]
        unrolled = list(reversed(written_out))
        if v["unroll"] > 1:
            depth[-1], ku = w.split(ki, v["unroll"])
            unrolled.insert(0, ku)
        batch = [self.rename(loop.name) for loop in roles.batch]
        order = [blocks[name] for name in k.block_loops(bool(v["rows_outside"]))]
        tiles = [column_tile, *row_tiles] if v["row_tiles_inside"] else [*row_tiles, column_tile]
        inner_loops = [*row_inner, vectors, lanes]
        if k.epilogue:
            w.reorder(*batch, *order, *tiles, *inner_loops)
        else:
            w.reorder(*batch, *self._with_ko(order, ko), *tiles, *depth, *unrolled, *inner_loops)
        joined = self._fuse(batch, order)
        place = {name: joined or name for name in (*batch, *order)}
        place |= {name: name for name in order[v["parallel"] :]}
        if k.epilogue:
            self._compute_tile(tiles[-1], [ko, *depth], unrolled)
        w.do(Vectorize(lanes), Unroll(vectors), *(Unroll(r) for r in row_inner))
        if not k.epilogue:
            w.do(*(Unroll(u) for u in unrolled))
        self._pack(place[column_block], place[order[-1]], ko)
        w.do(CacheWrite(self.stage, tiles[-1], f"{self.stage}.acc"))
        fused = (*batch, *order[: v["parallel"]]) if joined else ()
        if v["tails"]:
            for loop, tile_loop, key in zip(
                roles.rows, reversed(row_tiles), ("row", "row2"), strict=False
            ):
                tile = s["mr" if key == "row" else "mr2"]
                self._cut(loop, blocks[loop.name], tile_loop, tile, s[f"{key}_per"], fused)
        if v["tails"] == 2:
            self._cut(roles.columns, column_block, column_tile, s["nr"], s["col_per"], fused)
        if joined:
            w.do(Parallel(joined))

    def _with_ko(self, order: list[str], ko: str) -> list[str]:
        """The blocks of the reduction stand inside the first block loop unless that is fused."""
        first = max(self.v["parallel"], 1)
        return [*order[:first], ko, *order[first:]]

    def _fuse(self, batch: list[str], order: list[str]) -> str:
        """One loop of those that are divided among threads; "" where none are."""
        if self.k.target.threads == 1:
            return ""
        joined = ""
        for name in [*batch, *order[: self.v["parallel"]]]:
            joined = self.w.fuse(joined, name) if joined else name
        return joined

    def _compute_tile(self, tile_loop: str, depth: list[str], unrolled: list[str]) -> None:
        """The reduction of one tile, inside the loops of the stage that uses it."""
        w, roles = self.w, self.k.roles
        w.do(ComputeAt(self.stage, tile_loop, register=True))
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

    def _pack(self, column_place: str, row_place: str, ko: str) -> None:
        k, s, w = self.k, self.s, self.w
        blocked = s["k_count"] > 1 and not k.epilogue
        if self.v["copy_rows"]:
            for n, read in enumerate(k.copyable):
                name = f"{self.stage}.rows{n}"
                inside = [loop.var for loop in w.own_loops(self.stage, inside=row_place)]
                place = ko if blocked and ko in inside else row_place
                w.do(CacheRead(read.tensor, place, name))
                w.vectorise_writer(name, k.target.lanes(read.dtype))
        if self.v["pack_columns"]:
            for n, read in enumerate(k.packable):
                name = f"{self.stage}.pack{n}"
                w.do(CacheRead(read.tensor, ko if blocked else column_place, name))
                self._pack_layout(read, name)

    def _pack_layout(self, read: Read, name: str) -> None:
        """Tile by tile, in each the reduction outside and the tile's columns inside."""
        w, nr = self.w, self.s["nr"]
        dim = read.own_dim(self.k.roles.columns.name)
        assert dim is not None
        others = [(d, 0) for d in range(len(read.shape)) if d != dim]
        w.do(TransformLayout(name, ((dim, nr),), ((dim, 1), *others, (dim, 2))))
        loop = f"{name}.{dim}"
        if not w.has(loop):
            return
        rest = [other.var for other in w.own_loops(name) if other.var != loop]
        panel, column = w.split(loop, nr)
        vectors, lanes = w.split(column, self.k.lanes)
        w.reorder(panel, *rest, vectors, lanes)
        w.do(Vectorize(lanes), Unroll(vectors))

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
                suffix = name[len(block) :]
                w.do(Partition(name, whole_blocks))
                self._partition(f"{tile_loop}{suffix}.t", rest // tile)

    def _partition(self, loop: str, at: int) -> None:
        if 1 <= at < self.w.loop(loop).extent:
            self.w.do(Partition(loop, at))
