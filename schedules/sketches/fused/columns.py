"""The column sketch: stages that are computed together for a block of columns at a time.

    matrices and blocks of columns (parallel) | stages | groups of vectors | rows | vectors | lanes

All stages walk over the same few vectors of columns, so that what one leaves is still in a core's
own caches when the next one needs it. Reductions over the rows stay in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from ...plan import Access, Level, Outline, Plan, axes_of
from ...space import Knob, with_zeros
from ...target import Target
from ...workload.workload import Workload
from ..analysis import Read, StageView, math_calls
from ..hardware import LINE_BYTES
from ..knobs import Knobbed
from ..streams import stream_values, streams_pay
from ..tile.roles import is_product
from ..writer import TraceWriter
from .columns_trace import Block, column_walk, write_column_trace
from .group import FusionGroup, Stages, grown, is_loop, leading_axes, merged
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
class ColumnSketch(Knobbed):
    """See the module. Knobs `vectors` times `groups` say how wide a block is at most: blocks are
    as many as that needs, all as wide, and a multiple of the threads."""

    workload: Workload
    group: FusionGroup
    target: Target

    @property
    def name(self) -> str:
        return "columns"

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.group.last.dtype)

    @property
    def _columns(self) -> int:
        """How many columns there are."""
        return self.group.last.spatial[-1].extent

    @cached_property
    def _merged(self) -> dict[str, str]:
        """Reductions, each with the elementwise stage that one walk computes as well."""
        return merged(self.group, partial(column_walk, self.group))

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        most = -(-self._columns // self.lanes)
        blocks = self.group.repeats * most
        output = self.group.last.name
        streams = stream_values(self.workload, output, self.target)
        return (
            Knob("vectors", tuple(n for n in VECTORS if n == 1 or n <= most)),
            Knob("groups", tuple(n for n in GROUPS if n == 1 or 2 * n <= most)),
            Knob("parallel", (0, 1) if self.target.threads > 1 and blocks > 1 else (0,)),
            Knob("merge", (0, 1) if self._merged else (0,)),
            Knob("stream", (0,) if self.group.last.is_reduction else streams),
        )

    def block_vectors(self, v: dict[str, IntArray]) -> IntArray:
        """(P,) how many vectors wide blocks are: whole groups, all of the same size."""
        most = -(-self._columns // self.lanes)
        blocks = np.ceil(most / (v["vectors"] * v["groups"]))
        threads = np.where(v["parallel"] > 0, self.target.threads, 1)
        if self.group.repeats == 1:
            blocks = np.minimum(np.ceil(blocks / threads) * threads, most)
        groups = v["groups"]
        return (np.ceil(np.ceil(most / blocks) / groups) * groups).astype(np.int64)

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) all but groups of columns that are not there."""
        v = self.values(settings)
        most = -(-self._columns // self.lanes)
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
        columns = -(-self._columns // self.lanes) * self.lanes
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

    def columns(self, settings: IntArray) -> dict[str, FloatArray]:
        """See COLUMNS."""
        v = self.values(settings)
        group, ones = self.group, np.ones(len(v["vectors"]))
        block = self.block_vectors(v)
        vectors = (block // v["groups"]).astype(np.float64)
        width = block * self.lanes
        blocks = np.ceil(self._columns / width) * group.repeats
        # Lanes beyond the last column are computed and thrown away.
        wider = blocks * width / (self._columns * group.repeats)
        merges_with = self._merged
        merges = v["merge"] * float(len(merges_with))
        saved = v["merge"] * float(sum(x.points for x in group.stages if x.name in merges_with))
        points = float(sum(x.points for x in group.stages))
        written = float(sum(x.points for x in group.stages if not x.is_reduction))
        loads = float(sum(x.points * len(x.reads) for x in group.stages))
        ops = float(sum(x.points * max(x.operations, 1) for x in group.stages))
        math = float(sum(x.points * math_calls(x.value) for x in group.stages))
        stages = len(group.stages) - merges
        walks = blocks * v["groups"] * stages
        parallel = v["parallel"].astype(np.float64)
        found: dict[str, FloatArray] = {
            "flops": ones * ops,
            "vector_ops": wider * ops / self.lanes,
            "vector_loads": wider * (loads - saved) / self.lanes,
            "vector_stores": wider * written / self.lanes,
            "conflict_misses": self._lost_lines(v),
            "math_calls": wider * math / self.lanes,
            "accumulators": vectors,
            "live_registers": vectors * 2.0 + 2.0,
            "inner_trips": np.ceil(points * wider / self.lanes / vectors / walks),
            "inner_entries": walks,
            "code_ops": np.asarray(ops / points * vectors * stages, np.float64),
            "panel_bytes": np.asarray(self._kept_bytes() * width, np.float64),
            "streamed_bytes": np.asarray(
                v["stream"] * self._streams_pay * self._output_bytes(), np.float64
            ),
            "tasks": np.where(parallel > 0, blocks, 1.0),
            "regions": parallel,
        }
        return with_zeros(found)

    @cached_property
    def _streams_pay(self) -> bool:
        return streams_pay(self.workload, self.target)

    def _kept_bytes(self) -> float:
        """Bytes of the values between stages, a column."""
        kept = (x for x in self.group.inside if not x.is_reduction)
        return float(sum(column_depth(self.group, x) * x.dtype.bytes for x in kept))

    def _output_bytes(self) -> float:
        return float(self.group.last.outputs * self.group.last.dtype.bytes)

    def _lost_lines(self, v: dict[str, IntArray]) -> FloatArray:
        """(P,) lines of the values between stages that do not stay in a core's own caches, and of
        an output that is streamed although the last cache would hold it."""
        kept = self._kept_bytes()
        block = kept * self.block_vectors(v) * self.lanes
        lost = block > 0.75 * self.target.own_cache_bytes
        lines = 2.0 * kept * self._columns * self.group.repeats / LINE_BYTES
        wrong = v["stream"] * (not self._streams_pay) * self._output_bytes() / LINE_BYTES
        return np.asarray(lost * lines + wrong, np.float64)

    def default(self) -> tuple[int, ...]:
        """Eight vectors at once, as far as values between stages stay in a core's own caches."""
        vectors = len(VECTORS) - 1
        room = 0.5 * self.target.own_cache_bytes
        while vectors and self._kept_bytes() * VECTORS[vectors] * self.lanes > room:
            vectors -= 1
        stream = int(self._streams_pay)
        places = {"vectors": vectors, "groups": 0, "parallel": 1, "merge": 1, "stream": stream}
        return self.clipped(places)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other clusters' steps already."""
        v = self.values(np.asarray([setting]))
        wide = int(self.block_vectors(v)[0])
        block = Block(wide * self.lanes, wide // int(v["groups"][0]), self.lanes)
        write_column_trace(writer, self.group, block, self.chosen(setting))


def _step(axis: int | None) -> tuple[int, ...]:
    return tuple(int(axis == n) for n in (MATRIX, COLUMN, PASS, DEPTH))
