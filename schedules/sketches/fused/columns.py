"""The column sketch: stages that are computed together for a block of columns at a time.

    matrices and blocks of columns (parallel) | stages | rows | vectors | lanes

All stages walk over the same few vectors of columns, so that what one leaves is still in a core's
own caches when the next one needs it. Reductions over the rows stay in registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import IntArray
from ...leaves import Leaf, Loop, Statement
from ...plan import Level, Plan
from ...primitives import CacheWrite, ComputeAt, Merge, Unroll, Vectorize
from ...space import Knob
from ..analysis import SHORT_AXIS, StageView
from ..analysis import Loop as Axis
from ..groups import FusionGroup, Stages, grown, is_loop, leading_axes, merged
from ..knobs import POWERS, Values
from ..statements import axis_names, own_place, statement_of
from ..tile.roles import is_product
from ..writer import TraceWriter
from .reductions import contiguous_reduction
from .rows import RowPart


def column_group(stages: Stages, view: StageView) -> FusionGroup | None:
    """Stage `view` with the earlier ones that have its columns; None if there is no reduction over
    rows among them, or no second stage. Products are left out, which have more to gain from
    tiles."""
    few = not view.spatial or view.spatial[-1].extent < SHORT_AXIS
    if few or is_product(view) or not _is_by_column(view):
        return None

    def common(other: StageView, reader: StageView) -> int:
        apart = is_product(other) or not _is_by_column(other)
        return -1 if apart else _shared_beside_last(other.name, reader)

    found = grown(stages, FusionGroup(view, (), len(view.spatial) - 1), common, least=0)
    sums = any(stage.is_reduction for stage in found.stages)
    return found if found.inside and sums else None


def _is_by_column(view: StageView) -> bool:
    """Whether vectors along the stage's last axis are loaded whole, or are one element."""
    if view.phase_steps or view.axis_splits or not view.spatial:
        return False
    if view.spatial[-1].dim != len(view.shape) - 1 or contiguous_reduction(view) is not None:
        return False
    along = [read.element_stride(view.spatial[-1].name) for read in view.reads]
    return all(step in (0, 1) for step in along) and 1 in along


def _shared_beside_last(tensor: str, reader: StageView) -> int:
    """How many leading axes of `reader` are those of every read of `tensor`; -1 unless the last
    axes are the same."""
    shared = leading_axes(tensor, reader)
    for read in reader.reads:
        if read.tensor == tensor:
            if not read.index or not is_loop(read.index[-1], reader.spatial[-1]):
                return -1
            shared = min(shared, len(read.index) - 1, len(reader.spatial) - 1)
    return shared


@dataclass(frozen=True)
class ColumnSketch(RowPart):
    """See the module. Knob `vectors` says how wide a block is at most: blocks are as many as that
    needs, all as wide, and a multiple of the threads."""

    name = "columns"

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return self.group.last.spatial[-1].extent

    @cached_property
    def merged(self) -> dict[str, str]:
        """Reductions, each with the elementwise stage that one walk computes as well."""
        return merged(self.group, self._along_rows)

    def _along_rows(self, view: StageView) -> tuple[Axis, ...] | None:
        """The axes of a reduction over all rows, see `merged`."""
        lead = self.group.shared
        own = (*view.spatial[:lead], *self._own_axes(view))
        return own if len(view.spatial) == lead + 1 else None

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        most = -(-self.columns // self.lanes)
        fitting = (n for n in POWERS if n == 1 or (n <= most and self._keeps(n)))
        return (
            Knob("vectors", tuple(fitting)),
            self.parallel_knob(self.group.repeats * most > 1),
            Knob("merge", (0, 1) if self.merged else (0,)),
            Knob("stream", (0,) if self.group.last.is_reduction else self.stream_choices),
        )

    def _keeps(self, vectors: int) -> bool:
        """Whether values between stages, of so many vectors of columns, stay in a core's own caches
        beside what is read."""
        kept = (x for x in self.group.inside if not x.is_reduction)
        columns = self.group.repeats * self.columns
        column = sum(x.points // columns * x.dtype.bytes for x in kept)
        return 2 * column * vectors * self.lanes <= self.target.own_cache_bytes

    def block_vectors(self, v: Values) -> IntArray:
        """(P,) how many vectors wide blocks are, all of the same size."""
        most = -(-self.columns // self.lanes)
        blocks = -(-most // v["vectors"])
        threads = np.where(v["parallel"] > 0, self.target.threads, 1)
        if self.group.repeats == 1:
            blocks = np.minimum(-(-blocks // threads) * threads, most)
        return -(-most // blocks)

    has_private_rows = False

    def _own_axes(self, view: StageView) -> list[Axis]:
        *others, column = view.spatial[self.group.shared :]
        return [*others, *view.reduce, column]

    def plan(self, settings: IntArray) -> Plan:
        """Matrices, blocks of columns, a block's columns in each row."""
        v, lead = self.values(settings), self.group.shared
        width, shared = self.block_vectors(v) * self.lanes, v["parallel"] > 0
        column = len(self._outline.axes) - 1
        matrices = (Level(n, 1, shared) for n in range(lead))
        levels = (*matrices, Level(column, width, shared),
                  *(Level(n, 1) for n in range(lead, column + 1)))  # fmt: skip
        return Plan(self._outline, levels, len(width), streamed=self.streamed(v))

    def default(self) -> tuple[int, ...]:
        """As many vectors at once as there may be."""
        return self.clipped({"vectors": len(POWERS), "merge": 1})

    def leaves(self, settings: IntArray) -> tuple[Leaf, ...]:
        """Blocks of columns, in each stage after stage: rows, and the vectors of a block. Lanes
        beyond the last column are computed and thrown away, but for results."""
        return tuple(self._leaves(self.values(settings)))

    def _leaves(self, v: Values) -> Iterator[Leaf]:
        group, lanes, vectors = self.group, self.lanes, self.block_vectors(v)
        blocks = -(-self.columns // (vectors * lanes))
        filled = -(-self.columns // lanes) / (blocks * vectors)
        axes = frozenset({*map(str, range(group.shared)), "column"})
        block = Loop(axes, group.repeats * blocks, None, v["parallel"] > 0)
        copies, merge = {"column": vectors}, v["merge"] > 0
        partner = self.merged
        does: dict[str, Statement] = {}
        for view in group.stages:
            *rows, column = (*view.spatial[: group.shared], *self._own_axes(view))
            names = {**axis_names([x.name for x in rows]), column.name: "column"}
            share = filled if view is group.last else 1
            loop = block
            for n, axis in enumerate(rows[group.shared :], group.shared):
                loop = Loop(frozenset({str(n)}), axis.extent, loop)
            sums = vectors if view.is_reduction else 0
            does[view.name] = own = statement_of(view, names)
            if view.name in partner:
                also = does[partner[view.name]]
                yield Leaf(loop, also, copies, "column", lanes, merge, share)
            alone = 1 - merge * (view.name in partner.values())
            yield Leaf(loop, own, copies, "column", lanes, alone, share, sums=sums)
            if view.is_reduction:
                result = Statement(writes=own_place(view, names))
                yield Leaf(block, result, copies, "column", lanes, 1, share)

    def _loops(self, w: TraceWriter, v: dict[str, int]) -> str:
        wide = int(self.block_vectors({name: np.asarray([x]) for name, x in v.items()})[0])
        place = self._blocks(w, wide * self.lanes)
        for view in reversed(self.group.inside):
            w.do(ComputeAt(view.name, place))
        walks = {view.name: self._walk(w, view, place) for view in self.group.stages}
        for reduced, name in self.merged.items() if v["merge"] else ():
            w.do(*(Merge(*pair) for pair in zip(walks[name], walks[reduced], strict=True)))
        return place

    def _blocks(self, w: TraceWriter, width: int) -> str:
        """The loop over blocks of columns, of all matrices, around everything."""
        _, chain = w.writer_of(self.group.last.name)
        *spatial, column = [loop.var for loop in chain if not loop.reduce]
        reduce = [loop.var for loop in chain if loop.reduce]
        lead, others = spatial[: self.group.shared], spatial[self.group.shared :]
        blocks, within = w.split(column, width)
        w.reorder(*lead, blocks, *others, *reduce, within)
        return w.fuse_all((*lead, blocks))

    def _walk(self, w: TraceWriter, view: StageView, place: str) -> tuple[str, ...]:
        """Walk over the rows with a block's vectors at a time; what a reduction adds up stays in
        registers. The loops, outermost first; rows of one iteration have none where a stage was
        moved, and are left out."""
        own = w.own_loops(view.name, inside=place)
        *others, column = [loop.var for loop in own if not loop.reduce]
        reduce = [loop.var for loop in own if loop.reduce]
        middle, lane = w.split(column, self.lanes)
        w.reorder(*others, *reduce, middle, lane)
        w.do(Vectorize(lane), Unroll(middle))
        if view.is_reduction:
            w.do(CacheWrite(view.name, others[-1] if others else place, f"{view.name}.acc"))
        rows = reduce if view.is_reduction else others
        return (*(x for x in rows if w.loop(x).extent > 1), middle, lane)
