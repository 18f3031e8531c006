"""The sketch of one elementwise stage: row by row, or one loop over all elements.

    rows (parallel) | a row, in vectors, several per iteration

A row comprises the last axes along which all tensors are contiguous in the same order, possibly all
axes. If there are fewer rows than threads, rows are divided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Generic

import numpy as np

from ...arrays import IntArray, map_unique
from ...leaves import Leaf, LeafLoop
from ..analysis.stages import StageLoop
from ..groups import TASKS_PER_THREAD
from ..knobs import POWERS, N, knob, nontemporal_knob, nontemporal_values, parallel_knob, settings
from ..statements import axis_names
from ..vectors import row_pieces, share_of, vector_axis
from ..writer import TraceWriter
from .rows import RowPart
from .walks import RowStage, VectorSegment


@settings
class ElementwiseSettings(Generic[N]):
    """Vectors per iteration, parallelism over rows, and the kind of stores."""

    vectors: N = knob(lambda sketch: POWERS, usual=2)
    parallel: N = parallel_knob(lambda sketch: sketch.group.last.outputs > 1)
    nontemporal_stores: N = nontemporal_knob(lambda sketch: sketch.nontemporal_choices)


@dataclass(frozen=True)
class ElementwiseSketch(RowPart[ElementwiseSettings[IntArray], ElementwiseSettings[int]]):
    """The sketch of one elementwise stage: row by row, or one loop over all elements."""

    SETTINGS = ElementwiseSettings

    @cached_property
    def nontemporal_choices(self) -> tuple[int, ...]:
        flat = self.is_flat
        return nontemporal_values(self.workload, self.group.last.name, self.target, flat=flat)

    @cached_property
    def row(self) -> tuple[StageLoop, ...]:
        """The axes of a row. One loop iterates over all of them."""
        view = self.group.last
        *outer, last = view.spatial
        found = [last]
        while outer and view.reads_only and self._goes_on(outer[-1], found[0]):
            found.insert(0, outer.pop())
        return tuple(found)

    @property
    def is_flat(self) -> bool:
        """Whether all elements form one row."""
        return len(self.row) == len(self.group.last.spatial) > 1

    def _goes_on(self, outer: StageLoop, inner: StageLoop) -> bool:
        """Return whether one loop can replace `outer` and `inner`, because the elements of every
        read are equally spaced along both."""
        reads = self.group.last.reads
        steps = [(r.element_stride(outer.name), r.element_stride(inner.name)) for r in reads]
        return all(a is not None and b is not None and a == b * inner.extent for a, b in steps)

    @property
    def along(self) -> int:
        return prod(axis.extent for axis in self.row)

    def _piece(self, vectors: int, parallel: int) -> int:
        """Return the number of elements of a row that one task computes. If there are few rows, a
        row is divided into ranges of whole vectors."""
        threads, rows = self.target.threads, self.group.last.outputs // self.along
        pieces = -(-TASKS_PER_THREAD * threads // rows) if parallel and rows < 2 * threads else 1
        return min(share_of(self.along, pieces, vectors * self.lanes), self.along)

    def leaves(self, settings: IntArray) -> Iterator[Leaf]:
        """Yield the leaves of the full iterations along a row or a part of a row, and of the
        remainder."""
        view, along, v = self.group.last, self.along, self.values(settings)
        lanes = 1 if vector_axis(view, self.row) is None else self.lanes

        def count(vectors: int, parallel: int) -> tuple[float, ...]:
            """Return the sizes for one setting: whether rows are divided, the number of full tasks,
            the iterations of the loop over tasks, and both segments of a task."""
            piece, most = self._piece(vectors, parallel), vectors if lanes > 1 else 1
            rows, many = view.outputs // along, -(-along // piece)
            if many == 1:
                return (0, rows, rows, *row_pieces(along, lanes, most, cut=not self.is_flat))
            # The last piece is shorter.
            every, groups = -(-along // lanes), -(-along // (lanes * most))
            walk = (groups / many, most, lanes, every / (groups * most))
            return (1, rows * every / (piece // lanes), rows * many, *walk, 0, 1, 1, 1)

        is_cut, tasks, trips, *numbers = map_unique(count, v.vectors, v.parallel)
        names = [*axis_names([axis.name for axis in view.spatial]).values()]
        # A loop over pieces also advances along a row; a loop over rows does not.
        shared, outer = v.parallel > 0, frozenset(names[: -len(self.row)])
        outside = LeafLoop(outer, np.where(is_cut > 0, 1, trips), None, shared, tasks)
        task = LeafLoop(frozenset(names), np.where(is_cut > 0, trips, 1), outside, shared, tasks)
        walk = VectorSegment(*numbers[:4]), VectorSegment(*numbers[4:])
        loops = [LeafLoop(frozenset(names) - outer, piece.trips, task) for piece in walk]
        stage = RowStage(view, task, len(outer), self.lanes, v.vectors)
        yield from stage.walked(names[-1], walk, loops)

    def _loops(self, w: TraceWriter, setting: Sequence[int]) -> str:
        view, v = self.group.last, self.chosen(setting)
        piece = self._piece(v.vectors, v.parallel)
        w.do(*view.phase_steps, *view.axis_splits)
        loops = w.spatial_loops(view.name)
        row, task = w.fuse_all(loops[-len(self.row) :]), w.fuse_all(loops[: -len(self.row)])
        if piece < self.along:
            outer, _ = w.split(row, piece)
            task = w.fuse(task, outer) if task else outer
        # Partitioning a flattened row would prevent the proof that its halves are disjoint.
        w.vectorise_writer(view.name, self.lanes, v.vectors, inside=task, cut=not self.is_flat)
        return task
