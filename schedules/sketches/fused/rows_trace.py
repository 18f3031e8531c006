"""Writing down the trace of one setting of the row sketch, step by step."""

from __future__ import annotations

from math import ceil, prod

from ...nest.finding import reads_of
from ...nest.loop_ir import LoopKind, Update
from ...primitives import (
    CacheWrite,
    ComputeAt,
    Merge,
    Parallel,
    Partition,
    Prefetch,
    Stream,
    Unroll,
    Vectorize,
)
from ..analysis import Loop, StageView
from ..writer import TraceWriter
from .group import FusionGroup, merged
from .row_partials import Factoring, Partials
from .staggered import (
    ROWS_A_STEP,
    Steps,
    row_length,
    rows_a_task,
    staggered_steps,
    write_staggered,
)
from .walks import contiguous_reduction

MOST_UNROLLED_STEPS = 16
"""Steps of a reduction that are written out: a window, or a chunk of rows."""

LONG_ROW = 8
"""Vectors in a row from which on joining it with the next one gains nothing."""

TASKS_A_THREAD = 4
"""Tasks that rows which are too few for the threads are divided into, so that work evens out."""


def spread_tasks(group: FusionGroup, rows: int, threads: int) -> int:
    """Tasks a lone elementwise stage of few rows is divided into: its rows, if that will do."""
    spread = not group.inside and not group.last.is_reduction and rows < 2 * threads
    return rows * -(-TASKS_A_THREAD * threads // rows) if spread else rows


def column_piece(columns: int, threads: int, step: int) -> int:
    """Columns that a thread reduces, in whole steps of its vectors."""
    return ceil(ceil(columns / threads) / step) * step


def row_walk(view: StageView) -> tuple[Loop, ...] | None:
    """The loops of a reduction that walks along rows once, see `merged`."""
    loops = (*view.spatial, *view.reduce)
    short = any(loop.extent == 1 for loop in loops)
    along = contiguous_reduction(view)
    return None if along is None or len(view.reduce) != 1 or short else loops


def write_row_trace(
    writer: TraceWriter,
    group: FusionGroup,
    lanes: int,
    threads: int,
    v: dict[str, int],
    ahead: tuple[str, ...] = (),
) -> None:
    """Add the steps that schedule `group` with knob values `v` to `writer`; the next rows of
    the tensors `ahead` are asked for in time."""
    trace = _RowTrace(writer, group, lanes, threads, v)
    trace.write()
    for tensor in ahead:
        trace.fetch_ahead(tensor)
    if v["stream"]:
        writer.do(Stream(group.last.name))


class _RowTrace:
    def __init__(
        self,
        writer: TraceWriter,
        group: FusionGroup,
        lanes: int,
        threads: int,
        v: dict[str, int],
    ) -> None:
        self.w = writer
        self.c = group
        self.lanes = lanes
        self.threads = threads
        self.parts = v["parts"]
        self.is_divided = False
        self.vectors = v["vectors"]
        self.is_parallel = bool(v["parallel"])
        self.is_flat = bool(v["fuse_all"])
        self.block = v["block"]
        self.chunk = v["chunk"]
        self.merged = merged(group, row_walk) if v["merge"] else {}
        self.steps: Steps = staggered_steps(group, lanes) if v["stagger"] else ()
        self.walks: dict[str, tuple[str, ...]] = {}
        if self.steps:
            self._fit_vectors()
        self.factoring = Factoring(writer, lanes, self.vectors, self.parts)
        self.parallel_loop = ""

    def write(self) -> None:
        w, last = self.w, self.c.last
        for view in self.c.stages:
            w.do(*view.presolve)
        partials = {view.name: self._partials(view) for view in self.c.stages}
        for view in self.c.stages:  # where a reduction is factored, all spatial axes are rows
            if partials[view.name] is None:
                w.do(*view.presplit)
        loops = self._outer_loops(last)
        count = self.c.shared
        if not self.is_flat:
            joined = self._joined(loops)
            count, loops = count - (len(loops) - len(joined)), joined
        rows = loops if self.is_flat else loops[:count]
        row = ""
        for name in rows:
            row = w.fuse(row, name) if row else name
        if self.is_flat:
            self._flat(row)
            return
        row = self._spread(row, loops[count:])
        if self.steps:
            row = self._tasks(row)
        if self.block > 1 and self.c.inside and row and w.loop(row).extent % self.block == 0:
            row, _ = w.split(row, self.block)
        places = {last.name: self._place_partials(last, row, partials[last.name])}
        for view in reversed(self.c.inside):
            w.do(ComputeAt(view.name, row))
            places[view.name] = self._place_partials(view, row, partials[view.name])
        for view in self.c.stages:
            self._stage(view, row, places[view.name], partials[view.name])
        if self.steps:
            self._stagger(row)
        parallel = self.parallel_loop or row
        if self.is_parallel and parallel and not self.is_divided:
            w.do(Parallel(parallel))

    def _fit_vectors(self) -> None:
        """So many vectors at once that every walk along a row takes two steps or more."""
        row = row_length(self.steps)
        while self.vectors > 1 and 2 * self.vectors * self.lanes > row:
            self.vectors //= 2

    def _tasks(self, row: str) -> str:
        """Rows divided among the threads, for each of them to run one after the other."""
        rows = self.w.loop(row).extent
        if self.is_parallel:
            piece = rows_a_task(rows, self.threads, ROWS_A_STEP * len(self.steps), self.block)
            self.parallel_loop, row = self.w.split(row, piece)
        return row

    def _stagger(self, row: str) -> None:
        """Run the steps of several rows at once, in walks whose last vectors alone are masked."""
        write_staggered(self.w, row, self.steps, self.walks)
        extent, step = row_length(self.steps), self.vectors * self.lanes
        if extent % step:
            self.w.do(Partition(self._shared_walk()[int(self.block > 1)], extent // step))

    def _joined(self, loops: list[str]) -> list[str]:
        """The loops, the last few of them as one where that walks along all tensors: a short axis
        fills no vectors."""
        view = self.c.last
        if self.c.inside or view.is_reduction or not view.reads_only:
            return loops
        *outer, last = loops
        while len(outer) > 1 and self.w.loop(last).extent < LONG_ROW * self.lanes:
            if not self._is_one_walk(outer[-1], last):
                break
            last = self.w.fuse(outer.pop(), last)
        return [*outer, last]

    def _is_one_walk(self, outer: str, inner: str) -> bool:
        """Whether every access goes on along `outer` where it ends along `inner`."""
        leaf, _ = self.w.writer_of(self.c.last.name)
        extent = self.w.loop(inner).extent
        for tensor, index in self.w.accesses(leaf):
            far, near = (self.w.step_of(tensor, index, loop) for loop in (outer, inner))
            if far is None or near is None or far != near * extent:
                return False
        return True

    def fetch_ahead(self, tensor: str) -> None:
        """Hints for the rows that come next, in the last stage that reads the tensor: a hint for
        each vector, as far ahead as the rows that are computed together are long."""
        w = self.w
        if self.steps:
            self._fetch_staggered(tensor)
            return
        view = [v for v in self.c.stages if any(r.tensor == tensor for r in v.reads)][-1]
        if view.is_reduction or not view.spatial:
            return
        leaf, chain = w.writer_of(view.name)
        lanes = [loop for loop in chain if loop.kind is LoopKind.VECTORIZED]
        if not lanes or not w.reads_along(leaf, lanes[0].var) or chain[-1] is not lanes[0]:
            return
        around = chain[-2] if len(chain) > 1 else None
        if around is None or around.kind is LoopKind.PARALLEL:
            return
        row = prod(loop.extent for loop in view.spatial[self.c.shared :])
        w.do(Prefetch(tensor, around.var, max(self.block * row // lanes[0].extent, 1)))

    def _fetch_staggered(self, tensor: str) -> None:
        """Hints for the rows after those that the first step is at work on, in the walk that all
        steps share."""
        loop = self._shared_walk()[-2]
        if not reads_of(self.w.loop(loop).body, tensor):
            return
        row = row_length(self.steps)
        self.w.do(Prefetch(tensor, loop, 2 * self.block * row // self.lanes))

    def _shared_walk(self) -> tuple[str, ...]:
        """The loops that walk along the rows at work, outermost first."""
        return next(self.walks[v.name] for v in self.steps[0] if v.name in self.walks)

    def _outer_loops(self, view: StageView) -> list[str]:
        """The spatial loops around the leaf that writes the stage's own tensor."""
        _, chain = self.w.writer_of(view.name)
        return [loop.var for loop in chain if not loop.reduce]

    def _flat(self, fused: str) -> None:
        """One dense walk over everything, in pieces of a few thousand elements for the threads."""
        w, step = self.w, self.lanes * self.vectors
        extent = w.loop(fused).extent
        if self.is_parallel and extent >= 4 * step:
            piece = min(-(-extent // 8), 16384) // step * step
            outer, fused = w.split(fused, max(piece, step))
            w.vectorise_loop(fused, self.lanes, self.vectors)
            w.do(Parallel(outer))
        else:
            w.vectorise_loop(fused, self.lanes, self.vectors)

    def _spread(self, row: str, inner: list[str]) -> str:
        """Where rows are too few for the threads, blocks of the next axis are tasks as well."""
        w = self.w
        rows = w.loop(row).extent if row else 1
        blocks = spread_tasks(self.c, rows, self.threads) // rows
        if not self.is_parallel or not inner or blocks == 1:
            return row
        step = self.lanes * self.vectors if len(inner) == 1 else 1
        extent = w.loop(inner[0]).extent
        piece = ceil(ceil(extent / blocks) / step) * step
        if piece >= extent:
            return row
        outer, _ = w.split(inner[0], piece)
        return w.fuse(row, outer) if row else outer

    def _partials(self, view: StageView) -> Partials | None:
        """Factor a reduction: into parts for the threads if that was asked for, and into vectors
        of partial results where it walks over contiguous data."""
        along = contiguous_reduction(view)
        divided = self.factoring.divide(view, along) if self.parts > 1 else None
        if divided is None:
            return self.factoring.factor(view.name, along)
        buffer, along = divided
        partials = self.factoring.factor(buffer, along)
        _, chain = self.w.writer_of(buffer)
        task = ""
        for name in [loop.var for loop in chain if not loop.reduce]:
            task = self.w.fuse(task, name) if task else name
        if partials is not None:
            self.factoring.keep_in_registers(partials, task)
            self._combined(buffer, task, partials)
        self.w.do(Parallel(task))
        self.is_divided = True
        return None

    def _place_partials(self, view: StageView, row: str, partials: Partials | None) -> str:
        """Keep partial results in registers, next to where they are combined: in the loop that
        is returned."""
        own = self.w.own_loops(view.name, inside=row)
        spatial = [loop.var for loop in own if not loop.reduce]
        place = spatial[-1] if spatial else row
        if partials is not None:
            self.factoring.keep_in_registers(partials, place)
        return place

    def _stage(self, view: StageView, row: str, place: str, partials: Partials | None) -> None:
        if view.name in self.merged.values() and not self.is_divided:
            return  # its loops are those of the stage that reads it
        if self.steps and partials is None:
            if len(view.spatial) > self.c.shared:
                own = [loop.var for loop in self.w.own_loops(view.name, inside=row)]
                inner = self._in_steps(own[-1], self.lanes * self.vectors)
                self.walks[view.name] = (*own[:-1], *inner)
            return
        if partials is not None:
            self._combined(view.name, place, partials, row)
        elif view.is_reduction:
            self._along_columns(view, row)
        elif view is self.c.last and row and not self.c.inside and self._is_turned(view, row):
            self._in_blocks(view, row)
        else:
            self.w.vectorise_writer(view.name, self.lanes, self.vectors, inside=row, cut=True)

    def _is_turned(self, view: StageView, row: str) -> bool:
        """Whether vectors go along one axis and some read is contiguous along the rows instead."""
        leaf, _ = self.w.writer_of(view.name)
        own = [loop.var for loop in self.w.own_loops(view.name, inside=row)]
        best = self.w.best_vector_loop(leaf, own)
        return best is not None and self.w.reads_along(leaf, row) and len(own) == 1

    def _in_blocks(self, view: StageView, row: str) -> None:
        """Blocks of a cache line of rows by a vector of columns: a line is read while it is hot."""
        w = self.w
        (loop,) = [loop.var for loop in w.own_loops(view.name, inside=row)]
        block, inner_row = w.split(row, max(self.vectors * 4, 1))
        outer, inner = w.split(loop, self.lanes)
        w.reorder(block, outer, inner_row, inner)
        w.do(Vectorize(inner))
        self.parallel_loop = block

    def _combined(self, buffer: str, place: str, p: Partials, row: str = "") -> None:
        """Walk over the data with vectors, combine them into one, and that into the result."""
        w = self.w
        if p.vector != p.wide:
            self.factoring.vectorise(p.vector, place)
            w.do(Unroll(p.combine))
        self.factoring.vectorise(p.wide, place)
        w.do(CacheWrite(p.wide, place, f"{p.wide}.acc"))
        w.do(CacheWrite(buffer, place, f"{buffer}.total"), Vectorize(p.lanes))
        if buffer in self.merged:
            self._merge(self.merged[buffer], p, row)
        if self.steps:
            chain = [loop.var for loop in w.update_of(f"{p.wide}.acc")[1]]
            self.walks[buffer] = tuple(chain[chain.index(row) + 1 :])
            return
        whole = p.extent // p.width
        if p.extent % p.width and whole:
            w.do(Partition(p.walk, whole))

    def _merge(self, stage: str, p: Partials, row: str) -> None:
        """Compute the values of `stage` where they are added up: its loops in the form of those
        of the partial results, then one of each two."""
        w = self.w
        *outer, along = [loop.var for loop in w.own_loops(stage, inside=row)]
        chain = [loop.var for loop in w.update_of(f"{p.wide}.acc")[1]]
        walk = chain.index(p.walk)
        rows, vectors = chain[walk - len(outer) : walk], chain[walk + 1 :]
        loops = self._in_steps(along, p.width)
        pairs = zip([*outer, *loops], [*rows, p.walk, *vectors], strict=True)
        w.do(*(Merge(first, second) for first, second in pairs))

    def _in_steps(self, along: str, width: int) -> tuple[str, ...]:
        """Loop `along` in steps of `width`, of some vectors each."""
        w = self.w
        lanes = min(self.lanes, width)
        steps, rest = w.split(along, width)
        inner = [rest]
        if width > lanes:
            inner = list(w.split(rest, lanes))
            w.do(Unroll(inner[0]))
        w.do(Vectorize(inner[-1]))
        return (steps, *inner)

    def _along_columns(self, view: StageView, row: str) -> None:
        """A reduction with the vectors along a spatial axis, a few accumulators at a time."""
        w = self.w
        leaf, _ = w.writer_of(view.name)
        own = w.own_loops(view.name, inside=row)
        spatial = [loop for loop in own if not loop.reduce]
        reduce = [loop.var for loop in own if loop.reduce]
        best = w.best_vector_loop(leaf, [loop.var for loop in spatial])
        if best is None:
            self._scalar_reduction(view, [loop.var for loop in spatial], reduce, row)
            return
        few = not row or w.loop(row).extent < self.threads
        if few and self.is_parallel and not self.c.inside:
            best = self._column_tasks(best)
        extent, lanes = w.loop(best).extent, self.lanes
        vectors = self.vectors
        while vectors > 1 and vectors * lanes > extent:
            vectors //= 2
        outer, rest = w.split(best, vectors * lanes)
        middle, inner = w.split(rest, lanes)
        others = [loop.var for loop in spatial if w.has(loop.var)]
        outside, within = self._chunked(reduce)
        w.reorder(*others, *outside, outer, *within, middle, inner)
        if prod(w.loop(name).extent for name in within) <= MOST_UNROLLED_STEPS:
            w.do(*(Unroll(name) for name in within))
        w.do(Vectorize(inner), Unroll(middle), CacheWrite(view.name, outer, f"{view.name}.acc"))
        if extent % (vectors * lanes) and extent // (vectors * lanes):
            w.do(Partition(outer, extent // (vectors * lanes)))

    def _column_tasks(self, loop: str) -> str:
        """Columns divided among the threads; the loop that is left of `loop`."""
        w, step = self.w, self.lanes * self.vectors
        extent = w.loop(loop).extent
        piece = column_piece(extent, self.threads, step)
        if piece >= extent:
            return loop
        self.parallel_loop, inner = w.split(loop, piece)
        return inner

    def _chunked(self, reduce: list[str]) -> tuple[list[str], list[str]]:
        """The reduction loops that run outside the columns and those within: a few rows at a time
        are added up, so that every row is walked along."""
        w = self.w
        if not self.chunk or w.loop(reduce[-1]).extent <= self.chunk:
            return [], reduce
        outer, inner = w.split(reduce[-1], self.chunk)
        return [*reduce[:-1], outer], [inner]

    def _scalar_reduction(
        self, view: StageView, spatial: list[str], reduce: list[str], row: str
    ) -> None:
        """No axis is contiguous: one accumulator, element by element."""
        w = self.w
        place = spatial[-1] if spatial else row
        if place and isinstance(w.writer_of(view.name)[0], Update) and reduce:
            w.do(CacheWrite(view.name, place, f"{view.name}.acc"))
