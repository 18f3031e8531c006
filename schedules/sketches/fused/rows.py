"""The sketch of rows: stages that no other sketch takes, placed along common rows.

Stages that share their leading axes (the rows) are computed together, a row at a time, each kept
in a private buffer the size of a row: a softmax is one loop over rows with four short loops in it.
Within a row, an elementwise stage or a reduction over strided data is vectorised along the axis
that is contiguous; a reduction over contiguous data keeps one partial result for each lane of a
few vectors (RFactor) and combines them at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ...arrays import BoolArray, FloatArray, IntArray
from ...plan import Access, Axis, Level, Outline, Plan
from ...space import Knob, with_zeros
from ...target import Target
from ...workload.workload import Workload
from ..analysis import StageView, math_calls
from ..hardware import LINE_BYTES, PAGE_BYTES
from ..knobs import Knobbed, as_floats
from ..streams import has_aligned_rows, stream_values, streams_pay
from ..tile.roles import is_product
from ..writer import TraceWriter
from .group import FusionGroup, Stages, grown, leading_axes, merged
from .rows_trace import column_piece, row_walk, spread_tasks, write_row_trace
from .staggered import ROWS_A_STEP, Steps, can_block, rows_a_task, staggered_steps, sums_at_once
from .walks import contiguous_reduction, is_along_columns

LATE_BY_CHUNK = {0: 0.8, 2: 0.4, 4: 0.1, 8: 0.05, 16: 0.15}
"""Share of the lines of long rows that are waited for, by rows added up at a time: with all of
them each row is left after a few lines, with many too many rows are walked along at once."""

WAIT_FOR_A_ROW = 7.0
"""What the horizontal end of a row's sums takes, in misses of a cache near by: about 35 cycles."""


def own_rows(view: StageView) -> int:
    """How many leading axes of a stage that is alone are walked outside: all that vectors and
    reductions do not need."""
    if contiguous_reduction(view) is not None:
        return len(view.spatial)
    return max(len(view.spatial) - 1, 0)


def row_group(stages: Stages, view: StageView) -> FusionGroup:
    """Stage `view` with the earlier ones that can be computed in its rows; products are not, which
    have more to gain from tiles."""
    alone = FusionGroup(view, (), own_rows(view))
    if view.presplit:
        return alone

    def common(other: StageView, reader: StageView) -> int:
        apart = bool(other.presplit) or is_product(other)
        return -1 if apart else leading_axes(other.name, reader)

    most = FusionGroup(view, (), alone.shared or len(view.spatial))
    found = grown(stages, most, common, least=1)
    return found if found.inside else alone


def _is_divisible(group: FusionGroup) -> bool:
    """Whether threads can share a reduction: there is one, over contiguous data, and it needs no
    other stage."""
    first, *others = group.stages
    along = contiguous_reduction(first)
    return along is not None and not any(view.is_reduction for view in others)


@dataclass(frozen=True)
class RowSketch(Knobbed):
    """See the module. One knob setting schedules every stage of the group alike."""

    workload: Workload
    group: FusionGroup
    target: Target

    @property
    def name(self) -> str:
        return "rows"

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.group.last.dtype)

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        threads = self.target.threads
        divided = self._can_divide
        can_split = threads > 1 and (self._parallel_extent() > 1 or divided)
        return (
            Knob("vectors", (1, 2, 4, 8)),
            Knob("parallel", (0, 1) if can_split else (0,)),
            Knob("fuse_all", (0, 1) if self._fusable() else (0,)),
            Knob("parts", (1, threads, 2 * threads, 4 * threads) if divided else (1,)),
            Knob("block", self._blocks()),
            Knob("chunk", self._chunks()),
            Knob("ahead", (0, 1) if self._fetched() else (0,)),
            Knob("merge", (0, 1) if self._merged else (0,)),
            Knob("stagger", (0, 1) if self._can_stagger() else (0,)),
            Knob("stream", self._stream_values()),
        )

    @property
    def _can_divide(self) -> bool:
        """Whether there are too few rows for the threads, which can share a reduction."""
        return _is_divisible(self.group) and self.rows_in_all() < self.target.threads

    @cached_property
    def _streams_pay(self) -> bool:
        return streams_pay(self.workload, self.target)

    def _stream_values(self) -> tuple[int, ...]:
        output = self.group.last.name
        return stream_values(self.workload, output, self.target, flat=self._fusable())

    def _blocks(self) -> tuple[int, ...]:
        """Rows whose stages are computed together: one row's sums are waited for meanwhile. They
        are neighbours along the last of several axes."""
        if not self.group.inside or not self.group.shared:
            return (1,)
        along = self.group.last.spatial[self.group.shared - 1].extent
        return tuple(n for n in (1, 2, 4) if along % n == 0)

    @cached_property
    def _merged(self) -> dict[str, str]:
        """Sums, each with the elementwise stage that one walk computes as well."""
        return merged(self.group, row_walk)

    @cached_property
    def _steps(self) -> Steps:
        return staggered_steps(self.group, self.lanes)

    def _can_stagger(self) -> bool:
        """Whether steps of several rows can be run together, rows shared out evenly."""
        return len(self._steps) > 1 and self._has_tasks(1)

    def _has_tasks(self, block: int) -> bool:
        """Whether staggered blocks of rows can be shared out evenly, for one thread and for all."""
        rows, least = self.rows_in_all(), ROWS_A_STEP * len(self._steps)
        counts = (1, self.target.threads)
        if block > 1 and not can_block(self._steps):
            return False
        return all(rows_a_task(rows, threads, least, block) > 0 for threads in counts)

    def _fetched(self) -> tuple[str, ...]:
        """Inputs whose rows several stages read and no core's own caches hold."""
        if not self.group.inside or not self.group.shared:
            return ()
        row = self.group.shared
        tensors = [r.tensor for view in self.group.stages for r in view.reads]
        shared = [t for t in self.workload.inputs if tensors.count(t.name) > 1]
        large = [t for t in shared if t.bytes > self.target.own_cache_bytes]
        return tuple(t.name for t in large if len(t.shape) > row)

    def _chunks(self) -> tuple[int, ...]:
        """Rows added up at a time by a reduction along columns, 0 for all of them."""
        lengths = [view.reduce[-1].extent for view in self.group.stages if is_along_columns(view)]
        longest = max(lengths, default=0)
        return (0, *(n for n in (2, 4, 8, 16) if 2 * n <= longest))

    def rows_in_all(self) -> int:
        """How many rows there are for the threads."""
        return prod(loop.extent for loop in self.group.last.spatial[: self.group.shared])

    def _parallel_extent(self) -> int:
        loops = self.group.last.spatial
        return prod(loop.extent for loop in loops) if loops else 1

    def _fusable(self) -> bool:
        """Whether the one stage walks all its tensors in the same dense order."""
        last = self.group.last
        if self.group.inside or last.is_reduction or len(last.spatial) < 2 or last.presplit:
            return False
        identity = tuple(loop.name for loop in last.spatial)
        whole = [
            r for r in last.reads
            if tuple(map(str, r.index)) == identity and r.shape == last.shape and not r.conditional
        ]  # fmt: skip
        return len(whole) == len(last.reads)

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether a setting is worth a try; every one is legal. A reduction is divided for
        the threads and for nothing else."""
        v = self.values(settings)
        ok: BoolArray = (v["parts"] == 1) | (v["parallel"] > 0)
        if self.rows_in_all() == 1 and self._can_divide:
            ok &= (v["parts"] > 1) | (v["parallel"] == 0)
        # Staggered rows are computed in merged walks, as many of them at once as can be shared out.
        fits = np.isin(v["block"], [block for block in self._blocks() if self._has_tasks(block)])
        merged = v["merge"] == int(bool(self._merged))
        ok &= (v["stagger"] == 0) | (merged & fits)
        return ok

    @cached_property
    def _outline(self) -> Outline:
        """Rows, and the longest walk within a row."""
        last = self.group.last
        rows = max(self.rows_in_all(), 1)
        walk = max(view.points // rows for view in self.group.stages)
        found = {
            r.tensor: Access(r.tensor, r.dtype.bytes, ((1, 0), (0, 1)))
            for view in self.group.stages
            for r in view.reads
        }
        out = Access(last.name, last.dtype.bytes, ((1, 0), (0, 1)), is_output=True)
        axes = (Axis("rows", rows), Axis("walk", max(walk, 1)))
        return Outline(axes, (*found.values(), out))

    def plan(self, settings: IntArray) -> Plan:
        """Row by row, each walked along."""
        return Plan(self._outline, (Level(0, 1), Level(1, 1)), len(np.atleast_2d(settings)))

    def columns(self, settings: IntArray) -> dict[str, FloatArray]:
        """See COLUMNS; every stage is taken to be vectorised."""
        v = self.values(settings)
        f = as_floats(v)
        vectors, parallel, merge, staggered = (
            f[name] for name in ("vectors", "parallel", "merge", "stagger")
        )
        ones = np.ones_like(vectors)
        views = self.group.stages
        rows = max(prod(loop.extent for loop in self.group.last.spatial[: self.group.shared]), 1)
        points = float(sum(x.points for x in views))
        ops = float(sum(x.points * max(x.operations, 1) for x in views))
        reductions = sum(1 for x in views if x.is_reduction)
        strided = sum(x.points for x in views if not _has_contiguous(x))
        horizontal = rows * reductions * (vectors + 4.0) * np.where(staggered > 0, 0.25, 1.0)
        math = float(sum(x.points * math_calls(x.value) for x in views))
        loads = float(sum(x.points * len(x.reads) for x in views))
        saved = float(sum(x.points for x in views if x.name in self._merged))
        found: dict[str, FloatArray] = {
            "flops": ones * ops,
            "vector_ops": ops / self.lanes + horizontal,
            "vector_loads": (loads - merge * saved) / self.lanes,
            "vector_stores": ones * points / self.lanes,
            "scalar_accesses": ones * strided,
            "conflict_misses": self._late_lines(v) + self._late_rows(v),
            "math_calls": ones * math / self.lanes,
            "accumulators": vectors if reductions else 0.0 * ones,
            "live_registers": vectors * (1.0 + self._sums_at_once(v)) + 2.0,
            "inner_trips": np.ceil(points / rows / len(views) / (vectors * self.lanes)),
            "inner_entries": np.where(
                staggered > 0, rows, rows * (len(views) - merge * len(self._merged))
            ),
            "code_ops": ops / points * vectors * len(views),
            "tasks": np.where(parallel > 0, self._tasks(v), 1.0),
            "regions": parallel,
        }
        return with_zeros(found)

    def _sums_at_once(self, v: dict[str, IntArray]) -> FloatArray:
        """(P,) sums whose partial results are in registers together, or room for one."""
        most = sums_at_once(self._steps, self._merged.values()) if self._can_stagger() else 1
        return np.where(v["stagger"] > 0, max(float(most), 1.0), 1.0)

    def _late_rows(self, v: dict[str, IntArray]) -> FloatArray:
        """(P,) waits of later walks for the ends of rows' sums, those of a block together; and for
        half of the lines that are read where the rows at work crowd the first cache."""
        sums = any(contiguous_reduction(view) for view in self.group.stages)
        if not sums or sum(1 for walk in self._walks() if walk > 1) < 2:
            return np.zeros(len(v["block"]))
        crowded = (v["block"] > 1) & (v["block"] > self._uncrowded_rows())
        ends = WAIT_FOR_A_ROW * self.rows_in_all() * (len(self._blocks()) > 1) / v["block"]
        return np.asarray(ends + 0.5 * crowded * self._read_bytes() / LINE_BYTES, np.float64)

    def _late_lines(self, v: dict[str, IntArray]) -> FloatArray:
        """(P,) lines that are waited for: of inputs that are not asked for ahead, and of an output
        that is fetched to be written over, or streamed although the last cache would hold it."""
        inputs = sum(self.workload.tensors[name].bytes for name in self._fetched())
        output = self.workload.tensors[self.group.last.name].bytes
        can_stream = len(self._stream_values()) > 1
        wrong = self._is_streamed(v) != self._streams_pay
        late = np.where(v["ahead"] > 0, 0.0, 0.5 * inputs)
        late = np.where(v["stagger"] > 0, self._late_bytes_staggered(v, inputs), late)
        late = late + can_stream * wrong * output
        late = late + self._column_bytes() * np.asarray([LATE_BY_CHUNK[c] for c in v["chunk"]])
        return np.asarray(late / LINE_BYTES, np.float64)

    def _late_bytes_staggered(self, v: dict[str, IntArray], fetched: int) -> FloatArray:
        """(P,) bytes of inputs that are waited for where rows are staggered: the first step reads
        them long before the others, so hints for what comes after that pay from memory only."""
        hints = v["ahead"] > 0
        late = np.where(hints, 0.0, 0.3) if self._streams_pay else np.where(hints, 0.2, 0.0)
        return np.asarray(late * fetched, np.float64)

    def _walks(self) -> list[int]:
        """Elements that each stage walks along in a row."""
        return [view.points // max(self.rows_in_all(), 1) for view in self.group.stages]

    def _uncrowded_rows(self) -> int:
        """How many rows, as read, kept and written, fill a third of the first cache."""
        walks = self._walks()
        kept = len(self._steps) + 1 if self._steps else sum(1 for walk in walks if walk > 1)
        row = kept * max(walks) * self.group.last.dtype.bytes
        cache = min((cache.bytes for cache in self.target.caches), default=0)
        return cache // (3 * max(row, 1))

    def _read_bytes(self) -> int:
        own = {view.name for view in self.group.stages}
        reads = [r for view in self.group.stages for r in view.reads if r.tensor not in own]
        return sum({r.tensor: prod(r.shape) * r.dtype.bytes for r in reads}.values())

    def _is_streamed(self, v: dict[str, IntArray]) -> BoolArray:
        """(P,) whether the output is written past the caches indeed: not where each chunk of a
        reduction adds to it, and rows that begin anywhere only where all are walked as one."""
        last = self.group.last
        streamed: BoolArray = v["stream"] > 0
        if is_along_columns(last):
            streamed &= v["chunk"] == 0
        if not has_aligned_rows(self.workload, last.name, self.target):
            streamed &= v["fuse_all"] > 0
        return streamed

    def _column_bytes(self) -> int:
        """Bytes of long rows that are added up along columns."""
        stages = [view for view in self.group.stages if is_along_columns(view)]
        read = (self.workload.tensors[r.tensor] for view in stages for r in view.reads)
        long = [t for t in read if t.shape and t.shape[-1] * t.dtype.bytes > PAGE_BYTES]
        return sum(t.bytes for t in long if t.bytes > self.target.own_cache_bytes)

    def _tasks(self, v: dict[str, IntArray]) -> FloatArray:
        """(P,) iterations of the parallel loop."""
        rows = max(self.rows_in_all(), 1)
        wide = spread_tasks(self.group, rows, self.target.threads)
        tasks: FloatArray = np.maximum(rows * v["parts"].astype(np.float64), float(wide))
        if not self._divides_columns(rows):
            return tasks
        columns = self.group.last.spatial[-1].extent
        pieces = [
            -(-columns // column_piece(columns, self.target.threads, int(n) * self.lanes))
            for n in v["vectors"]
        ]
        return np.maximum(tasks, np.asarray(pieces, np.float64))

    def _divides_columns(self, rows: int) -> bool:
        """Whether threads share the columns of a lone reduction that walks along them."""
        few = not self.group.shared or rows < self.target.threads
        return few and not self.group.inside and is_along_columns(self.group.last)

    def default(self) -> tuple[int, ...]:
        """Four vectors at once, every thread; a few rows at once where they are in the caches,
        staggered where they can be."""
        size = {knob.name: len(knob.values) for knob in self.knobs}
        places = {
            "vectors": 2,
            "parallel": 1,
            "fuse_all": 1,
            "parts": 1,
            "block": self._default_block(size),
            "chunk": 3,
            "ahead": int(size["stagger"] == 1 or self._streams_pay),
            "merge": 1,
            "stagger": 1,
            "stream": int(self._streams_pay),
        }
        return self.clipped(places)

    def _default_block(self, size: dict[str, int]) -> int:
        if size["stagger"] == 1:
            return 0 if size["ahead"] > 1 else 2
        room = self._uncrowded_rows()
        fits = [n for n, b in enumerate(self._blocks()) if b <= room and self._has_tasks(b)]
        return max(fits, default=0)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other clusters' steps already."""
        v = self.chosen(setting)
        ahead = self._fetched() if v["ahead"] else ()
        write_row_trace(writer, self.group, self.lanes, self.target.threads, v, ahead)


def _has_contiguous(view: StageView) -> bool:
    loops = (*view.spatial, *view.reduce)
    return (
        any(
            all(r.element_stride(loop.name) in (0, 1) for r in view.reads)
            and any(r.element_stride(loop.name) == 1 for r in view.reads)
            for loop in loops
        )
        or not view.reads
    )
