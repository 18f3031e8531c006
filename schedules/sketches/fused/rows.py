"""The sketch of several stages that share their leading axes, the rows: a row at a time.

    rows (parallel) | block of rows | stages, each: a walk along the row, in vectors

Each stage is kept in a private buffer the size of a row: a softmax is one loop over rows with four
short loops in it. Within a row, an elementwise stage is vectorised along the axis that is
contiguous, a reduction as `reduction_steps.py` says. Where `staggered.py` finds steps that can
overlap, several rows are at work at once, each at another step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import BoolArray, IntArray
from ...primitives import Parallel, Stream
from ...space import Knob
from ..analysis import StageView
from ..groups import FusionGroup, Stages, grown, leading_axes, merged
from ..streams import stream_values
from ..tile.roles import is_product
from ..writer import TraceWriter
from .row_part import VECTORS, RowPart, own_rows
from .rows_trace import RowAfterRow, StaggeredRows
from .staggered import ROWS_A_STEP, Steps, can_block, rows_a_task, staggered_steps
from .walks import chunks_of, row_walk


def row_group(stages: Stages, view: StageView) -> FusionGroup | None:
    """Stage `view` with the earlier ones that can be computed in its rows, None if there are none;
    products are not, which have more to gain from tiles."""
    if view.presplit:
        return None

    def common(other: StageView, reader: StageView) -> int:
        apart = bool(other.presplit) or is_product(other)
        return -1 if apart else leading_axes(other.name, reader)

    most = FusionGroup(view, (), own_rows(view) or len(view.spatial))
    found = grown(stages, most, common, least=1)
    return found if found.inside else None


@dataclass(frozen=True)
class RowSketch(RowPart):
    """See the module. One knob setting schedules every stage of the group alike."""

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        return (
            VECTORS,
            self.parallel_knob(),
            self.parts_knob(),
            Knob("block", self.blocks),
            Knob("chunk", chunks_of(self.group.stages)),
            Knob("ahead", (0, 1) if self.fetched else (0,)),
            Knob("merge", (0, 1) if self.merged else (0,)),
            Knob("stagger", (0, 1) if self.can_stagger else (0,)),
            Knob("stream", self.stream_choices),
        )

    @cached_property
    def stream_choices(self) -> tuple[int, ...]:
        return stream_values(self.workload, self.group.last.name, self.target)

    @cached_property
    def blocks(self) -> tuple[int, ...]:
        """Rows whose stages are computed together: one row's sums are waited for meanwhile. They
        are neighbours along the last of several axes."""
        along = self.group.last.spatial[self.group.shared - 1].extent
        return tuple(n for n in (1, 2, 4) if along % n == 0)

    @cached_property
    def fetched(self) -> tuple[str, ...]:
        """Inputs whose rows several stages read and no core's own caches hold."""
        tensors = [r.tensor for view in self.group.stages for r in view.reads]
        shared = [t for t in self.workload.inputs if tensors.count(t.name) > 1]
        large = [t for t in shared if t.bytes > self.target.own_cache_bytes]
        return tuple(t.name for t in large if len(t.shape) > self.group.shared)

    @cached_property
    def merged(self) -> dict[str, str]:
        """Sums, each with the elementwise stage that one walk computes as well."""
        return merged(self.group, row_walk)

    @cached_property
    def steps(self) -> Steps:
        return staggered_steps(self.group, self.lanes)

    @cached_property
    def can_stagger(self) -> bool:
        """Whether steps of several rows can be run together, rows shared out evenly."""
        return len(self.steps) > 1 and self._has_tasks(1)

    def _has_tasks(self, block: int) -> bool:
        """Whether staggered blocks of rows can be shared out evenly, for one thread and for all."""
        if block > 1 and not can_block(self.steps):
            return False
        rows, least = self.group.repeats, ROWS_A_STEP * len(self.steps)
        return all(rows_a_task(rows, n, least, block) > 0 for n in (1, self.target.threads))

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether a setting is worth a try; every one is legal. Staggered rows are computed in
        merged walks, as many of them at once as can be shared out."""
        v = self.values(settings)
        fits = np.isin(v["block"], [block for block in self.blocks if self._has_tasks(block)])
        is_merged = v["merge"] == int(bool(self.merged))
        ok: BoolArray = (v["stagger"] == 0) | (is_merged & fits)
        return ok & self.divides_for_threads(v)

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
        if self.can_stagger:
            room = self.uncrowded_rows()
            fits = (n for n, b in enumerate(self.blocks) if b <= room and self._has_tasks(b))
            block = max(fits, default=0)
        else:
            block = 0 if self.fetched else 2
        ahead = int(not self.can_stagger or self.streams_pay_here)
        places = {"vectors": 2, "parallel": 1, "parts": 1, "block": block, "chunk": 3}
        places |= {"ahead": ahead, "merge": 1, "stagger": 1, "stream": int(self.streams_pay_here)}
        return self.clipped(places)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        v = self.chosen(setting)
        kind = StaggeredRows if v["stagger"] else RowAfterRow
        trace = kind(writer, self.group, self.lanes, self.target.threads, v)
        task = trace.write()
        if v["parallel"] and task:
            writer.do(Parallel(task))
        for tensor in self.fetched if v["ahead"] else ():
            trace.fetch_ahead(tensor)
        if v["stream"]:
            writer.do(Stream(self.group.last.name))
