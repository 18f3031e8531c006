"""The column sketch: stages that are computed together for a block of columns at a time.

    matrices and blocks of columns (parallel) | stages | groups of vectors | rows | vectors | lanes

All stages walk over the same few vectors of columns, so that what one leaves is still in a core's
own caches when the next one needs it. Reductions over the rows stay in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import BoolArray, IntArray
from ...plan import Access, Level, Outline, Plan, axes_of
from ...primitives import CacheWrite, ComputeAt, Merge, Parallel, Stream, Unroll, Vectorize
from ...space import Knob
from ..analysis import Loop, Read, StageView
from ..groups import FusionGroup, Stages, grown, is_loop, leading_axes, merged
from ..tile.roles import is_product
from ..writer import TraceWriter
from .group_sketch import GroupSketch
from .walks import FEWEST_COLUMNS, contiguous_reduction

VECTORS, GROUPS = (1, 2, 4, 8), (1, 2, 4)
MATRIX, COLUMN, PASS, DEPTH = range(4)
"""What the loops of the traffic model walk along; a pass goes over the rows once."""


def column_group(stages: Stages, view: StageView) -> FusionGroup | None:
    """Stage `view` with the earlier ones that have its columns; None if there is no reduction over
    rows among them, or no second stage, or where rows of the narrowest block do not stay in a
    core's own caches. Products are left out, which have more to gain from tiles."""
    few = not view.spatial or view.spatial[-1].extent < FEWEST_COLUMNS
    if few or is_product(view) or not _is_by_column(view):
        return None

    def common(other: StageView, reader: StageView) -> int:
        apart = is_product(other) or not _is_by_column(other)
        return -1 if apart else _shared_beside_last(other.name, reader)

    found = grown(stages, FusionGroup(view, (), len(view.spatial) - 1), common, least=0)
    if not found.inside or not any(stage.is_reduction for stage in found.stages):
        return None
    block = _read_bytes(found) * stages.target.lanes(view.dtype)
    return found if block <= stages.target.own_cache_bytes else None


def _is_by_column(view: StageView) -> bool:
    """Whether vectors along the stage's last axis are loaded whole, or are one element."""
    if view.presolve or view.presplit or not view.spatial:
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


def column_depth(group: FusionGroup, view: StageView) -> int:
    """Evaluations of a stage for one column of one iteration of the shared axes."""
    return view.points // (group.repeats * group.last.spatial[-1].extent)


def _read_bytes(group: FusionGroup) -> int:
    """Bytes of the rows that are walked over again, for one column of one matrix."""
    inside = {view.name for view in group.inside}
    deepest: dict[str, int] = {}
    for view in group.stages:
        for read in view.reads:
            if read.tensor not in inside and len(read.shape) > group.shared + 1:
                size = column_depth(group, view) * read.dtype.bytes
                deepest[read.tensor] = max(size, deepest.get(read.tensor, 0))
    return sum(deepest.values())


@dataclass(frozen=True)
class ColumnSketch(GroupSketch):
    """See the module. Knobs `vectors` times `groups` say how wide a block is at most: blocks are
    as many as that needs, all as wide, and a multiple of the threads."""

    @property
    def name(self) -> str:
        return "columns"

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return self.group.last.spatial[-1].extent

    @cached_property
    def merged(self) -> dict[str, str]:
        """Reductions, each with the elementwise stage that one walk computes as well."""
        return merged(self.group, self._walk_over)

    def _walk_over(self, view: StageView) -> tuple[Loop, ...] | None:
        """The loops of a reduction over all rows, see `merged`: shared ones, those it reduces,
        columns."""
        *lead, column = view.spatial
        return (*lead, *view.reduce, column) if len(lead) == self.group.shared else None

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        most = -(-self.columns // self.lanes)
        blocks = self.group.repeats * most
        return (
            Knob("vectors", tuple(n for n in VECTORS if n == 1 or n <= most)),
            Knob("groups", tuple(n for n in GROUPS if n == 1 or 2 * n <= most)),
            Knob("parallel", (0, 1) if self.target.threads > 1 and blocks > 1 else (0,)),
            Knob("merge", (0, 1) if self.merged else (0,)),
            Knob("stream", (0,) if self.group.last.is_reduction else self.stream_choices),
        )

    def block_vectors(self, v: dict[str, IntArray]) -> IntArray:
        """(P,) how many vectors wide blocks are: whole groups, all of the same size."""
        most = -(-self.columns // self.lanes)
        blocks = np.ceil(most / (v["vectors"] * v["groups"]))
        threads = np.where(v["parallel"] > 0, self.target.threads, 1)
        if self.group.repeats == 1:
            blocks = np.minimum(np.ceil(blocks / threads) * threads, most)
        groups = v["groups"]
        return (np.ceil(np.ceil(most / blocks) / groups) * groups).astype(np.int64)

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) all but groups of columns that are not there."""
        v = self.values(settings)
        most = -(-self.columns // self.lanes)
        ok: BoolArray = (v["groups"] == 1) | (v["vectors"] * v["groups"] <= most)
        return ok

    def plan(self, settings: IntArray) -> Plan:
        """Matrices, blocks of columns, passes over the rows, a block's columns in each row."""
        v = self.values(settings)
        width = self.block_vectors(v) * self.lanes
        shared = v["parallel"] > 0
        levels = (
            Level(MATRIX, 1, shared),
            Level(COLUMN, width, shared),
            Level(PASS, 1),
            Level(DEPTH, 1),
            Level(COLUMN, 1),
        )
        return Plan(self._outline, levels, len(width))

    @property
    def _passes(self) -> int:
        """How often the rows of a tensor are walked over, on average."""
        reads = [read for view in self.group.stages for read in view.reads if self._is_deep(read)]
        tensors = {read.tensor for read in reads}
        return max(round(len(reads) / max(len(tensors), 1)), 1)

    def _is_deep(self, read: Read) -> bool:
        """Whether a tensor has rows to walk over, and not one value for a column."""
        return len(read.shape) > self.group.shared + 1

    @cached_property
    def _outline(self) -> Outline:
        depth = max(column_depth(self.group, view) for view in self.group.stages)
        # Vectors are walked whole, whatever columns there are in the last.
        columns = -(-self.columns // self.lanes) * self.lanes
        extents = (self.group.repeats, columns, self._passes, depth)
        axes = axes_of(zip(("matrices", "columns", "passes", "rows"), extents, strict=True))
        return Outline(axes, self._accesses())

    def _accesses(self) -> tuple[Access, ...]:
        own = {view.name for view in self.group.inside}
        found: dict[str, Access] = {}
        for view in self.group.stages:
            for read in view.reads:
                if read.tensor not in own:
                    found.setdefault(read.tensor, self._access(view, read))
        last = self.group.last
        lead, others = self.group.shared, len(last.spatial) - 1 - self.group.shared
        strides = [_step(MATRIX if d == 0 else None) for d in range(lead)]
        strides += [_step(DEPTH if d == others - 1 else None) for d in range(others)]
        size = last.dtype.bytes
        out = Access(last.name, size, (*strides, _step(COLUMN)), is_output=True)
        return (*found.values(), out)

    def _access(self, view: StageView, read: Read) -> Access:
        """Matrices along the first dimension they move, and rows along the last one: what lies
        between is as far apart."""
        column = view.spatial[-1].name
        shared = {loop.name for loop in view.spatial[: self.group.shared]}
        axes: list[int | None] = []
        for index in read.index:
            used = index.vars()
            deep = used - shared - {column}
            axes.append(COLUMN if column in used else DEPTH if deep else MATRIX if used else None)
        kept = [
            None
            if (axis == MATRIX and MATRIX in axes[:d]) or (axis == DEPTH and DEPTH in axes[d + 1 :])
            else axis
            for d, axis in enumerate(axes)
        ]
        return Access(read.tensor, read.dtype.bytes, tuple(_step(axis) for axis in kept))

    def kept_bytes(self) -> float:
        """Bytes of the values between stages, a column."""
        kept = (x for x in self.group.inside if not x.is_reduction)
        return float(sum(column_depth(self.group, x) * x.dtype.bytes for x in kept))

    def default(self) -> tuple[int, ...]:
        """Eight vectors at once, as far as values between stages stay in a core's own caches."""
        vectors = len(VECTORS) - 1
        room = 0.5 * self.target.own_cache_bytes
        while vectors and self.kept_bytes() * VECTORS[vectors] * self.lanes > room:
            vectors -= 1
        stream = int(self.streams_pay_here)
        places = {"vectors": vectors, "groups": 0, "parallel": 1, "merge": 1, "stream": stream}
        return self.clipped(places)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        v, group = self.chosen(setting), self.group
        wide = int(self.block_vectors(self.values(np.asarray([setting])))[0])
        place = self._blocks(writer, wide * self.lanes)
        for view in reversed(group.inside):
            writer.do(ComputeAt(view.name, place))
        width = wide // v["groups"] * self.lanes
        walks = {view.name: self._walk(writer, view, place, width) for view in group.stages}
        for reduced, name in self.merged.items() if v["merge"] else ():
            _merge(writer, walks[name], walks[reduced])
        if v["parallel"]:
            writer.do(Parallel(place))
        if v["stream"]:
            writer.do(Stream(group.last.name))

    def _blocks(self, w: TraceWriter, width: int) -> str:
        """The loop over blocks of columns, of all matrices, around everything."""
        _, chain = w.writer_of(self.group.last.name)
        *spatial, column = [loop.var for loop in chain if not loop.reduce]
        reduce = [loop.var for loop in chain if loop.reduce]
        lead, others = spatial[: self.group.shared], spatial[self.group.shared :]
        blocks, within = w.split(column, width)
        w.reorder(*lead, blocks, *others, *reduce, within)
        return w.fuse_all((*lead, blocks))

    def _walk(self, w: TraceWriter, view: StageView, place: str, width: int) -> _Walk:
        """Walk over the rows with a few vectors of columns at a time; what a reduction adds up
        stays in registers."""
        own = w.own_loops(view.name, inside=place)
        *others, column = [loop.var for loop in own if not loop.reduce]
        reduce = [loop.var for loop in own if loop.reduce]
        group, rest = w.split(column, width)
        middle, lane = w.split(rest, self.lanes)
        if view.is_reduction:
            w.reorder(*others, group, *reduce, middle, lane)
        else:
            w.reorder(group, *others, middle, lane)
        w.do(Vectorize(lane), Unroll(middle))
        if view.is_reduction:
            w.do(CacheWrite(view.name, group, f"{view.name}.acc"))
        return _Walk(group, tuple(reduce if view.is_reduction else others), middle, lane)


@dataclass(frozen=True, slots=True)
class _Walk:
    """The loops of a stage within a block: groups of vectors, rows, vectors of a group, lanes."""

    group: str
    rows: tuple[str, ...]
    middle: str
    lane: str


def _merge(w: TraceWriter, first: _Walk, second: _Walk) -> None:
    """One walk of two. Rows of one iteration have no loop of their own where a stage was moved, so
    the ones left are those of more."""
    one, other = ([x for x in walk.rows if w.loop(x).extent > 1] for walk in (first, second))
    w.do(Merge(first.group, second.group))
    w.do(*(Merge(a, b) for a, b in zip(one, other, strict=True)))
    w.do(Merge(first.middle, second.middle), Merge(first.lane, second.lane))


def _step(axis: int | None) -> tuple[int, ...]:
    return tuple(int(axis == n) for n in (MATRIX, COLUMN, PASS, DEPTH))
