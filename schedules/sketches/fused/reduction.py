"""The sketch of one reduction that has no use for tiles: what it reads is used about once.

    results (parallel) | the reduction, lanes along it
    columns (parallel) | chunks of rows | vectors of columns | rows of a chunk | vector

Which of the two follows from where data is contiguous (`walks.py`). Where results are too few for
the threads, these share the reduction or the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ...arrays import BoolArray, IntArray
from ...primitives import Parallel, Stream
from ...space import Knob
from ..writer import TraceWriter
from .reduction_steps import ReductionSteps
from .row_part import VECTORS, RowPart
from .walks import chunks_of, contiguous_reduction


@dataclass(frozen=True)
class ReductionSketch(RowPart):
    """See the module."""

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        return (
            VECTORS,
            self.parallel_knob(),
            self.parts_knob(),
            Knob("chunk", chunks_of((self.group.last,))),
            Knob("stream", self.stream_choices),
        )

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether a setting is worth a try; every one is legal."""
        return self.divides_for_threads(self.values(settings))

    def default(self) -> tuple[int, ...]:
        """Four vectors at once, every thread."""
        stream = int(self.streams_pay_here)
        return self.clipped(
            {"vectors": 2, "parallel": 1, "split_k": 1, "chunk": 3, "stream": stream}
        )

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        v, w, view = self.chosen(setting), writer, self.group.last
        w.do(*view.presolve)
        steps = ReductionSteps(w, self.lanes, v["vectors"])
        is_divided = v["split_k"] > 1 and steps.divide(view, v["split_k"])
        along = None if is_divided else contiguous_reduction(view)
        partials = steps.factor(view.name, along)
        if partials is None:  # where a reduction is factored, all spatial axes are rows
            w.do(*view.presplit)
        task = w.fuse_all(w.spatial_loops(view.name)[: self.group.shared])
        if partials is None:
            few = not task or w.loop(task).extent < self.target.threads
            threads = self.target.threads if few and v["parallel"] else 1
            task = steps.along_columns(view, task, v["chunk"], threads) or task
        else:
            place = steps.place(view.name, task)
            steps.keep_in_registers(partials, place)
            steps.combine(view.name, place, partials)
            steps.cut(partials)
        if v["parallel"] and task and not is_divided:
            w.do(Parallel(task))
        if v["stream"]:
            w.do(Stream(view.name))
