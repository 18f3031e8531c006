"""Copies of the operands of tiles: panels of columns, blocks of rows, and prepacked constants.

In fused packing, the first tile of rows copies the columns of each step while it computes. Later
tiles reuse the panel.

    pack: for k: P[k] = B[k]                  tile 0: for k: P[k] = B[k]; acc += A[k] * P[k]
    for t: for k: acc += A[t, k] * P[k]  ->   for t in 1..: for k: acc += A[t, k] * P[k]

A separate packing loop delays every tile of rows, and its loads wait for memory. The multiply-adds
of the first tile leave most load and store ports free, and its steps last long enough to prefetch
the data copied some steps later. On Zen 5, 512x2048x1024 takes 0.979 of the time on one thread and
0.978 on two, and 1024x1024x1024 takes 0.99. Prefetching in a separate copy loop also gives 0.99.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from ...hardware import FMA_PIPES
from ...nest.loop_ir import LoopKind
from ...primitives import (
    CacheRead,
    Merge,
    PackAhead,
    Parallel,
    Partition,
    Prefetch,
    TransformLayout,
    Unroll,
    Vectorize,
)
from ...primitives.places import ROOT
from ..analysis.stages import StageRead
from ..writer import TraceWriter
from .settings import TileSettings
from .stage import TileStage

AHEAD_CYCLES = 600.0
"""Prefetch distance in cycles before a line is copied: the latency of the last cache, and of memory
on most machines. Half and twice the distance are equally fast."""


@dataclass(frozen=True)
class Packing:
    """Emits the copies for tiles whose sums are in `buffer`."""

    w: TraceWriter
    t: TileSettings[int]
    buffer: str
    filling: dict[str, dict[int, str]] = field(default_factory=dict)
    """The loops that fill each panel, by panel name and dimension of the operand."""

    @property
    def k(self) -> TileStage:
        return self.t.stage

    def write(self, column_place: str, row_place: str, ko: str) -> None:
        """Emit the copies of operands.

        `column_place` and `row_place` are the loops over blocks of columns and of rows. Operands
        are copied inside these loops. If the reduction has several blocks, they are copied inside
        `ko`, the loop over these blocks (rows only if `ko` is inside `row_place`).
        """
        k, t, w = self.k, self.t, self.w
        name_of, blocked = k.view.name, t.k_count > 1
        if t.copies_rows:
            for n, read in enumerate(k.copyable):
                name = f"{name_of}.rows{n}"
                inside = [loop.var for loop in w.own_loops(self.buffer, inside=row_place)]
                place = ko if blocked and ko in inside else row_place
                w.do(CacheRead(read.tensor, place, name))
                if k.is_copied_transposed(read):
                    self._transpose_rows(read, name)
                else:
                    w.vectorise_writer(name, k.target.lanes(read.dtype))
        if t.packs:
            for n, read in enumerate(k.packed_inside(ahead=bool(t.prepacks))):
                name = f"{name_of}.pack{n}"
                place = ko if blocked else column_place
                along = "" if k.moves_as_one(read) else self._lanes()
                if k.outer:
                    place = ROOT
                w.do(CacheRead(read.tensor, place, name, along=along))
                if k.outer:
                    self._whole_layout(read, name)
                elif read in k.windows:
                    self._window_layout(read, name)
                else:
                    self._pack_layout(read, name)
        if t.prepacks:
            self._prepack()

    def _lanes(self) -> str:
        _, chain = self.w.update_of(self.buffer)
        return next(loop.var for loop in chain if loop.kind is LoopKind.VECTORIZED)

    def _prepack(self) -> None:
        """Prepack each constant column operand as a whole, in panels as wide as a tile. The loop
        over panels is outermost and parallel, so that threads synchronise once per copy."""
        w = self.w
        for n, read in enumerate(self.k.prepacked):
            name = f"{self.k.view.name}.ahead{n}"
            w.do(CacheRead(read.tensor, ROOT, name), PackAhead(name))
            panel = self._pack_layout(read, name)
            if panel:
                own = [loop.var for loop in w.own_loops(name) if loop.kind is LoopKind.SERIAL]
                w.reorder(panel, *own[: own.index(panel)])
                if self.k.target.threads > 1 and w.loop(panel).extent > 1:
                    w.do(Parallel(panel))

    def _depth_of(self, read: StageRead) -> Callable[[int], int]:
        """Return a function that maps a dimension of `read` to its nesting depth in the loops of
        the reduction. A panel that is stored in the order of this depth is read sequentially."""
        roles, taps = self.k.roles, self.k.short_taps()
        unrolled = [loop for n, loop in enumerate(taps) if self.t.unrolls_tap(n)]
        outside = [loop for loop in roles.taps if loop not in unrolled]
        walked = [loop.name for loop in (*outside, roles.main, *reversed(unrolled))]

        def depth(dim: int) -> int:
            used = read.index[dim].vars()
            return max((n for n, name in enumerate(walked) if name in used), default=-1)

        return depth

    def _window_layout(self, read: StageRead, name: str) -> None:
        """Lay out the copy of windows: the reduction outside, in the order in which it is read, and
        the elements along the columns inside."""
        last = len(read.shape) - 1
        others = sorted(range(last), key=self._depth_of(read))
        self.w.do(TransformLayout(name, (), (*((d, 0) for d in others), (last, 0))))
        self.w.vectorise_writer(name, self.k.target.lanes(read.dtype))

    def _transpose_rows(self, read: StageRead, name: str) -> None:
        """Lay out the copy of rows with the reduction last, so that its steps read consecutive
        elements."""
        w, last = self.w, len(read.shape) - 1
        depth = read.own_dim(self.k.roles.main.name)
        assert depth is not None
        others = [dim for dim in range(last) if dim != depth]
        loops = w.loops_by_dim(name)
        w.do(TransformLayout(name, (), (*((d, 0) for d in others), (last, 0), (depth, 0))))
        if depth not in loops or last not in loops:  # nothing to transpose in this setting
            w.vectorise_writer(name, self.k.lanes)
            return
        steps, lanes = w.split(loops[depth], self.k.lanes)
        outside = [loops[dim] for dim in others if dim in loops]
        self._transpose_blocks(read, name, loops[last], [*outside, steps], lanes)

    def _whole_layout(self, read: StageRead, name: str) -> None:
        """Lay out the copy of a whole operand like one panel: the reduction outside, and all
        columns inside. Threads divide its longest other dimension."""
        w = self.w
        dim, longest = self.k.column_dim(read), self.k.longest_dim(read)
        assert dim is not None
        others = sorted((d for d in range(len(read.shape)) if d != dim), key=self._depth_of(read))
        loops = w.loops_by_dim(name)
        w.do(TransformLayout(name, (), (*((d, 0) for d in others), (dim, 0))))
        outside = sorted((d for d in others if d in loops), key=lambda d: d != longest)
        w.reorder(*(loops[d] for d in outside), loops[dim])
        w.vectorise_loop(loops[dim], self.k.lanes, 1)
        if longest is not None and self.t.parallel:
            w.do(Parallel(loops[longest]))

    def _pack_layout(self, read: StageRead, name: str) -> str:
        """Lay out the copy as panels, each as wide as one tile of columns, with the reduction
        outside and the columns inside. Return the loop over panels, or "" if there is only one
        column."""
        w, nr = self.w, self.t.nr
        dim = self.k.column_dim(read)
        assert dim is not None
        others = sorted((d for d in range(len(read.shape)) if d != dim), key=self._depth_of(read))
        parts = ((dim, 1), *((d, 0) for d in others), (dim, 2))
        loops = self.filling[name] = w.loops_by_dim(name)
        w.do(TransformLayout(name, ((dim, nr),), parts))
        loop = loops.get(dim)
        if loop is None:
            return ""
        # A block with one element of the last dimension is not transposed.
        transposed = loops.get(len(read.shape) - 1, "") if self.k.is_transposed(read) else ""
        rest = [other.var for other in w.own_loops(name) if other.var not in (loop, transposed)]
        panel, column = w.split(loop, nr)
        vectors, lanes = w.split(column, self.k.lanes)
        if transposed:
            self._transpose_blocks(read, name, transposed, [*rest, panel, vectors], lanes)
            return panel
        # Gathered columns are copied one panel at a time, which keeps fewer cache lines in use.
        gathered = read.element_stride(self.k.roles.columns.name) != 1
        w.reorder(*((panel, *rest) if gathered else (*rest, panel)), vectors, lanes)
        w.do(Vectorize(lanes), Unroll(vectors))
        return panel

    def _transpose_blocks(
        self, read: StageRead, name: str, along: str, outside: list[str], lanes: str
    ) -> None:
        """Fill a copy from a tensor that is contiguous `along` its last dimension instead of the
        lanes. Blocks are loaded along that dimension and transposed in registers. Full blocks are
        partitioned from the remainder."""
        w = self.w
        whole = w.loop(along).extent // self.k.lanes
        blocks, within = w.split(along, self.k.lanes)
        w.reorder(*outside, blocks, within, lanes)
        w.read_block(read.tensor, blocks, f"{name}.block")
        w.do(Unroll(within), Vectorize(lanes))
        if 0 < whole < w.loop(blocks).extent:
            w.do(Partition(blocks, whole))


def fuse_packing(packing: Packing, depth: list[str]) -> None:
    """Fuse packing into the first tile. All steps that change the loops of tiles must have been
    emitted. `depth` are the loops of the reduction that are not unrolled, outermost first."""
    w, t, stage = packing.w, packing.t, packing.t.stage
    sums = f"{stage.view.name}.acc"
    step_cycles = t.sums * t.unrolled_copies
    ahead = ceil(AHEAD_CYCLES * FMA_PIPES / step_cycles)
    panels = zip(stage.fusable_panels, packing.filling.items(), strict=True)
    for n, (read, (panel, filling)) in enumerate(panels):
        if not n:
            _peel_first_tile(w, panel, sums, depth[0])
        axes = (*depth[:-1], stage.roles.main.name)
        dims = [(read.own_dim(axis), loop) for axis, loop in zip(axes, depth, strict=True)]
        # A tap loop of one iteration has no dimension and stays outside the merged loops.
        walked = {filling[dim]: loop for dim, loop in dims if dim is not None}
        _merge(w, panel, walked, t.together)
        if ahead < w.loop(depth[-1]).extent:
            line = stage.target.line_bytes // read.dtype.bytes
            w.do(Prefetch(read.tensor, depth[-1], ahead, depth[-1], "", line))


def _peel_first_tile(w: TraceWriter, pack: str, sums: str, reduction: str) -> None:
    """Peel the first tile that uses the panel `pack`."""
    _, packing = w.writer_of(pack)
    _, chain = w.update_of(sums)
    names = [loop.var for loop in chain]
    shared = sum(loop in packing for loop in chain)
    for name in names[shared : names.index(reduction)]:
        if w.loop(name).extent > 1:
            w.partition(name, 1)


def _merge(w: TraceWriter, pack: str, walked: dict[str, str], unroll: int) -> None:
    """Merge the loops of the copy into the loops of the reduction. `walked` maps each loop of the
    copy to its loop of the reduction."""
    serial = [loop.var for loop in w.own_loops(pack) if loop.kind is LoopKind.SERIAL]
    inside = [name for name in serial if name not in walked]
    own = list(walked)
    if unroll > 1:
        own[-1], within = w.split(own[-1], unroll)
        inside.insert(0, within)
    w.reorder(*own, *inside)
    w.do(*(Unroll(name) for name in inside))
    w.do(*(Merge(*pair) for pair in zip(own, walked.values(), strict=True)))
