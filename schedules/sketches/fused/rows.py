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

from ...arrays import BoolArray, IntArray
from ...plan import Access, Axis, Level, Outline, Plan
from ...space import Knob
from ...target import Target
from ...workload.workload import Workload
from ..analysis import StageView
from ..groups import FusionGroup, Stages, grown, leading_axes, merged
from ..knobs import Knobbed
from ..streams import stream_values, streams_pay
from ..tile.roles import is_product
from ..writer import TraceWriter
from .rows_trace import row_walk, write_row_trace
from .staggered import ROWS_A_STEP, Steps, can_block, rows_a_task, staggered_steps
from .walks import contiguous_reduction, is_along_columns


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
            Knob("block", self.blocks()),
            Knob("chunk", self._chunks()),
            Knob("ahead", (0, 1) if self.fetched() else (0,)),
            Knob("merge", (0, 1) if self.merged else (0,)),
            Knob("stagger", (0, 1) if self.can_stagger() else (0,)),
            Knob("stream", self.stream_choices()),
        )

    @property
    def _can_divide(self) -> bool:
        """Whether there are too few rows for the threads, which can share a reduction."""
        return _is_divisible(self.group) and self.rows_in_all() < self.target.threads

    @cached_property
    def streams_pay_here(self) -> bool:
        return streams_pay(self.workload, self.target)

    def stream_choices(self) -> tuple[int, ...]:
        output = self.group.last.name
        return stream_values(self.workload, output, self.target, flat=self._fusable())

    def blocks(self) -> tuple[int, ...]:
        """Rows whose stages are computed together: one row's sums are waited for meanwhile. They
        are neighbours along the last of several axes."""
        if not self.group.inside or not self.group.shared:
            return (1,)
        along = self.group.last.spatial[self.group.shared - 1].extent
        return tuple(n for n in (1, 2, 4) if along % n == 0)

    @cached_property
    def merged(self) -> dict[str, str]:
        """Sums, each with the elementwise stage that one walk computes as well."""
        return merged(self.group, row_walk)

    @cached_property
    def steps(self) -> Steps:
        return staggered_steps(self.group, self.lanes)

    def can_stagger(self) -> bool:
        """Whether steps of several rows can be run together, rows shared out evenly."""
        return len(self.steps) > 1 and self._has_tasks(1)

    def _has_tasks(self, block: int) -> bool:
        """Whether staggered blocks of rows can be shared out evenly, for one thread and for all."""
        rows, least = self.rows_in_all(), ROWS_A_STEP * len(self.steps)
        counts = (1, self.target.threads)
        if block > 1 and not can_block(self.steps):
            return False
        return all(rows_a_task(rows, threads, least, block) > 0 for threads in counts)

    def fetched(self) -> tuple[str, ...]:
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
        fits = np.isin(v["block"], [block for block in self.blocks() if self._has_tasks(block)])
        merged = v["merge"] == int(bool(self.merged))
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

    def walks(self) -> list[int]:
        """Elements that each stage walks along in a row."""
        return [view.points // max(self.rows_in_all(), 1) for view in self.group.stages]

    def uncrowded_rows(self) -> int:
        """How many rows, as read, kept and written, fill a third of the first cache."""
        walks = self.walks()
        kept = len(self.steps) + 1 if self.steps else sum(1 for walk in walks if walk > 1)
        row = kept * max(walks) * self.group.last.dtype.bytes
        cache = min((cache.bytes for cache in self.target.caches), default=0)
        return cache // (3 * max(row, 1))

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
            "ahead": int(size["stagger"] == 1 or self.streams_pay_here),
            "merge": 1,
            "stagger": 1,
            "stream": int(self.streams_pay_here),
        }
        return self.clipped(places)

    def _default_block(self, size: dict[str, int]) -> int:
        if size["stagger"] == 1:
            return 0 if size["ahead"] > 1 else 2
        room = self.uncrowded_rows()
        fits = [n for n, b in enumerate(self.blocks()) if b <= room and self._has_tasks(b)]
        return max(fits, default=0)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        v = self.chosen(setting)
        ahead = self.fetched() if v["ahead"] else ()
        write_row_trace(writer, self.group, self.lanes, self.target.threads, v, ahead)
