"""Copies of what tiles read: panels of columns, blocks of rows, what is prepacked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...nest.loop_ir import LoopKind
from ...primitives import (
    CacheRead,
    PackAhead,
    Parallel,
    Partition,
    TransformLayout,
    Unroll,
    Vectorize,
)
from ...primitives.places import ROOT
from ..analysis.stages import StageRead
from ..writer import TraceWriter
from .stage import TileStage


@dataclass(frozen=True, slots=True)
class Packing:
    """Writes the copies for knob values `v` and sizes `s` of tiles whose sums are in `buffer`."""

    w: TraceWriter
    k: TileStage
    v: dict[str, int]
    s: dict[str, int]
    buffer: str

    @property
    def stage(self) -> str:
        return self.k.view.name

    def write(self, column_place: str, row_place: str, ko: str) -> None:
        """Copy inside of these loops over blocks of columns and of rows, or inside of `ko` where
        there are several blocks of the reduction."""
        k, s, w = self.k, self.s, self.w
        blocked = s["k_count"] > 1
        if self.v["copy_rows"]:
            for n, read in enumerate(k.copyable):
                name = f"{self.stage}.rows{n}"
                inside = [loop.var for loop in w.own_loops(self.buffer, inside=row_place)]
                place = ko if blocked and ko in inside else row_place
                w.do(CacheRead(read.tensor, place, name))
                w.vectorise_writer(name, k.target.lanes(read.dtype))
        if self.v["pack_columns"]:
            for n, read in enumerate(k.packed_inside(ahead=self.v["pack_columns"] == 2)):
                name = f"{self.stage}.pack{n}"
                place = ko if blocked else column_place
                along = "" if k.moves_as_one(read) else self._lanes()
                w.do(CacheRead(read.tensor, place, name, along=along))
                self._pack_layout(read, name)
        if self.v["pack_columns"] == 2:
            self._prepack()

    def _lanes(self) -> str:
        """The vectorised loop around the reduction."""
        _, chain = self.w.update_of(self.buffer)
        return next(loop.var for loop in chain if loop.kind is LoopKind.VECTORIZED)

    def _prepack(self) -> None:
        """All of each constant column operand, in panels as wide as a tile, once for all calls. The
        loop over panels is outside, where threads share it: they meet once a copy then, and not
        once a row of it."""
        w = self.w
        for n, read in enumerate(self.k.prepacked):
            name = f"{self.stage}.ahead{n}"
            w.do(CacheRead(read.tensor, ROOT, name), PackAhead(name))
            panel = self._pack_layout(read, name)
            if panel:
                own = [loop.var for loop in w.own_loops(name) if loop.kind is LoopKind.SERIAL]
                w.reorder(panel, *own[: own.index(panel)])
                if self.k.target.threads > 1 and w.loop(panel).extent > 1:
                    w.do(Parallel(panel))

    def _depth_of(self, read: StageRead) -> Callable[[int], int]:
        """How far inside the reduction's loops each dimension of `read` is walked: a panel kept in
        that order is read from end to end."""
        roles, taps = self.k.roles, self.k.short_taps()
        written_out = taps[: self.v["unroll_window"]]
        outside = [loop for loop in roles.taps if loop not in written_out]
        walked = [loop.name for loop in (*outside, roles.main, *reversed(written_out))]

        def depth(dim: int) -> int:
            used = read.index[dim].vars()
            return max((n for n, name in enumerate(walked) if name in used), default=-1)

        return depth

    def _pack_layout(self, read: StageRead, name: str) -> str:
        """Tile by tile, in each the reduction outside and the tile's columns inside. The loop over
        tiles, "" where there is but one column."""
        w, nr = self.w, self.s["nr"]
        dim = self.k.column_dim(read)
        assert dim is not None
        others = sorted((d for d in range(len(read.shape)) if d != dim), key=self._depth_of(read))
        parts = ((dim, 1), *((d, 0) for d in others), (dim, 2))
        w.do(TransformLayout(name, ((dim, nr),), parts))
        loop = f"{name}.{dim}"
        if not w.has(loop):
            return ""
        transposed = f"{name}.{len(read.shape) - 1}" if self.k.is_transposed(read) else ""
        if transposed and not w.has(transposed):  # one element of it a block
            transposed = ""
        rest = [other.var for other in w.own_loops(name) if other.var not in (loop, transposed)]
        panel, column = w.split(loop, nr)
        vectors, lanes = w.split(column, self.k.lanes)
        if transposed:
            self._transpose_panels(read, name, [*rest, panel, vectors], lanes)
            return panel
        # Columns that are gathered come a panel at a time: fewer lines are open at once.
        gathered = read.element_stride(self.k.roles.columns.name) != 1
        w.reorder(*((panel, *rest) if gathered else (*rest, panel)), vectors, lanes)
        w.do(Vectorize(lanes), Unroll(vectors))
        return panel

    def _transpose_panels(self, read: StageRead, name: str, outside: list[str], lanes: str) -> None:
        """Fill panels from a tensor that is contiguous along its last dimension and not along the
        lanes: blocks of vectors along that are transposed in registers. Whole blocks are parts of
        their own."""
        w, along = self.w, f"{name}.{len(read.shape) - 1}"
        whole = w.loop(along).extent // self.k.lanes
        blocks, within = w.split(along, self.k.lanes)
        w.reorder(*outside, blocks, within, lanes)
        w.read_block(read.tensor, blocks, f"{name}.block")
        w.do(Unroll(within), Vectorize(lanes))
        if 0 < whole < w.loop(blocks).extent:
            w.do(Partition(blocks, whole))
