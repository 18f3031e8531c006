"""The sketch of one elementwise stage: row by row, or one walk over everything.

    rows (parallel) | a row, in vectors, a few at once

Rows are as long as all tensors are walked along in the same order: the last axes, or all of them.
Rows that are too few for the threads are divided.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ...arrays import IntArray
from ...leaves import Leaf, Loop
from ...space import Knob
from ..analysis import Loop as Axis
from ..groups import TASKS_A_THREAD
from ..knobs import each_of, stream_values
from ..statements import axis_names, statement_of
from ..vectors import one_piece, row_pieces, share_of, vector_axis
from ..writer import TraceWriter
from .rows import VECTORS, RowPart


@dataclass(frozen=True)
class ElementwiseSketch(RowPart):
    """See the module."""

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        parallel = self.parallel_knob(self.group.last.outputs > 1)
        return (VECTORS, parallel, Knob("stream", self.stream_choices))

    @cached_property
    def stream_choices(self) -> tuple[int, ...]:
        return stream_values(self.workload, self.group.last.name, self.target, flat=self.is_flat)

    @cached_property
    def row(self) -> tuple[Axis, ...]:
        """The axes of a row, which are walked along as one."""
        view = self.group.last
        *outer, last = view.spatial
        found = [last]
        while outer and view.reads_only and self._goes_on(outer[-1], found[0]):
            found.insert(0, outer.pop())
        return tuple(found)

    @property
    def is_flat(self) -> bool:
        """Whether everything is one row."""
        return len(self.row) == len(self.group.last.spatial) > 1

    def _goes_on(self, outer: Axis, inner: Axis) -> bool:
        """Whether every read goes on along `outer` where it ends along `inner`."""
        reads = self.group.last.reads
        steps = [(r.element_stride(outer.name), r.element_stride(inner.name)) for r in reads]
        return all(a is not None and b is not None and a == b * inner.extent for a, b in steps)

    def _piece(self, extent: int, rows: int, width: int) -> int:
        """How much of a row a thread has: pieces in whole vectors where rows are few."""
        threads = self.target.threads
        pieces = -(-TASKS_A_THREAD * threads // rows) if rows < 2 * threads else 1
        return share_of(extent, pieces, width)

    def leaves(self, settings: IntArray) -> tuple[Leaf, ...]:
        """Whole vectors of a row, or of a piece of one, and what is left."""
        view, lanes, v = self.group.last, self.lanes, self.values(settings)
        along = prod(axis.extent for axis in self.row)
        rows, side = view.outputs // along, 1 if vector_axis(view, self.row) is None else lanes

        def count(vectors: int, parallel: int) -> tuple[float, ...]:
            """Whether rows are cut, tasks, how many there are, which share of the copies has an
            element; trips, copies, lanes of both."""
            piece = self._piece(along, rows, vectors * lanes) if parallel else along
            if piece < along:  # a last piece is shorter
                many, most = -(-along // piece), vectors if side > 1 else 1
                every, groups = -(-along // side), -(-along // (side * most))
                tasks, filled = rows * every / (piece // side), every / (groups * most)
                return (1, tasks, rows * many, filled, groups / many, most, side, 0, 1, 1)
            if side == 1:
                return (0, rows, rows, 1, along, 1, 1, 0, 1, 1)
            if self.is_flat:
                return (0, 1, 1, 1, *one_piece(along, lanes, vectors), 0, 1, 1)
            return (0, rows, rows, 1, *row_pieces(along, lanes, vectors))

        is_cut, tasks, trips, filled, *numbers = each_of(v, ("vectors", "parallel"), count)
        names = axis_names([axis.name for axis in view.spatial])
        does, lane = statement_of(view, names), names[view.spatial[-1].name]
        within = frozenset(names[axis.name] for axis in self.row)
        # A loop over pieces moves along a row as well, one over rows does not.
        shared, every = v["parallel"] > 0, frozenset(names.values())
        outside = Loop(every - within, np.where(is_cut > 0, 1, trips), None, shared, tasks)
        task = Loop(every, np.where(is_cut > 0, trips, 1), outside, shared, tasks)
        return tuple(
            Leaf(
                Loop(within, trips, task),
                does,
                {lane: copies},
                lane,
                width,
                1,
                filled,
                piece=(n, 0),
            )
            for n, (trips, copies, width) in enumerate((numbers[:3], numbers[3:]))
        )

    def _loops(self, w: TraceWriter, v: dict[str, int]) -> str:
        view, width = self.group.last, self.lanes * v["vectors"]
        w.do(*view.phase_steps, *view.axis_splits)
        loops = w.spatial_loops(view.name)
        along, task = w.fuse_all(loops[-len(self.row) :]), w.fuse_all(loops[: -len(self.row)])
        extent = w.loop(along).extent
        piece = self._piece(extent, w.loop(task).extent if task else 1, width)
        if v["parallel"] and piece < extent:
            outer, _ = w.split(along, piece)
            task = w.fuse(task, outer) if task else outer
        # A cut through rows that are one walk hides from proofs that its halves lie apart.
        w.vectorise_writer(view.name, self.lanes, v["vectors"], inside=task, cut=not self.is_flat)
        return task
