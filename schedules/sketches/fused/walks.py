"""Leaves of one stage of a group. They follow the passes of the stage along its axes in the
trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from math import ceil, log2, prod
from typing import NamedTuple, TypeAlias

import numpy as np

from ...arrays import Number, map_unique
from ...leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ..analysis.reductions import contiguous_reduction
from ..analysis.stages import StageLoop, StageView
from ..statements import axis_names, own_place, statement_of
from ..vectors import fit, fitting, row_pieces, vector_axis
from .reductions import columns_of, unrolls_steps


class VectorSegment(NamedTuple):
    """A part of an axis that is computed in vectors."""

    trips: Number
    """Number of iterations. It is 0 for a part that does not exist."""
    copies: Number
    """Vectors per iteration."""
    lanes: Number
    """Lanes per vector."""
    filled: Number = 1
    """Fraction of the vectors that have elements."""


Walk: TypeAlias = tuple[VectorSegment, VectorSegment]
"""A pass along an axis: the full iterations, and the remainder."""


def in_pieces(extent: int, lanes: int, most: Number, *, is_widened: bool) -> Walk:
    """Return the pass along an axis in whole vectors, with a remainder. If `is_widened`, a
    reduction reads the result, and the length is rounded up to full iterations."""

    def count(most: int) -> tuple[float, ...]:
        width = fitting(lanes, extent)
        width *= fitting(most, extent // width)
        longer = -(-extent // width) * width if is_widened else extent
        found = row_pieces(longer, lanes, most)
        filled = -(-extent // found[2]) / -(-longer // found[2])
        return (*found[:3], filled, *found[4:7], filled)

    found = map_unique(count, most)
    return VectorSegment(*found[:4]), VectorSegment(*found[4:])


def in_steps(extent: Number, lanes: int, most: Number) -> Walk:
    """Return the pass along an axis in full iterations of `most` vectors (fewer if the axis is
    shorter), followed by a partially filled iteration."""
    copies = fit(most, np.floor_divide(extent, lanes))
    whole = np.floor_divide(extent, copies * lanes)
    left = extent - whole * copies * lanes
    filled = np.ceil(left / lanes).clip(1) / copies
    return VectorSegment(whole, copies, lanes), VectorSegment(left > 0, copies, lanes, filled)


@dataclass(frozen=True, eq=False)
class RowStage:
    """A stage that is computed inside loop `row`."""

    view: StageView
    row: LeafLoop
    shared: int
    """Number of leading axes outside `row`."""
    lanes: int
    vectors: Number
    """Largest number of vectors of `lanes` lanes per iteration."""
    step: int = 0
    """Step of the stage in the software pipeline."""

    @cached_property
    def names(self) -> dict[str, str]:
        view = self.view
        return axis_names([x.name for x in (*view.spatial, *view.reduce)])

    @cached_property
    def does(self) -> Statement:
        return statement_of(self.view, self.names)

    @property
    def own(self) -> AccessPattern:
        return own_place(self.view, self.names)

    def along(self, *axes: StageLoop) -> frozenset[str]:
        return frozenset(self.names[axis.name] for axis in axes)

    def around(self, loop: LeafLoop, axes: Iterable[StageLoop]) -> LeafLoop:
        return reduce(lambda loop, axis: LeafLoop(self.along(axis), axis.extent, loop), axes, loop)

    def elementwise(self, times: Number = 1, *, is_summed: bool = False) -> Iterator[Leaf]:
        """Yield the leaves with vectors along the axis that is contiguous in most accesses."""
        own = self.view.spatial[self.shared :]
        axis = vector_axis(self.view, own)
        around = self.around(self.row, (x for x in own if x is not axis))
        if axis is None:
            yield Leaf(around, self.does, frequency=times)
            return
        walk = in_pieces(axis.extent, self.lanes, self.vectors, is_widened=is_summed)
        loops = [LeafLoop(self.along(axis), piece.trips, around) for piece in walk]
        yield from self.walked(self.names[axis.name], walk, loops, times)

    def walked(
        self, lane: str, walk: Walk, loops: Sequence[LeafLoop], times: Number = 1
    ) -> Iterator[Leaf]:
        """Yield the leaves in `loops`, the loops of the pass `walk` along axis `lane`."""
        for n, (piece, loop) in enumerate(zip(walk, loops, strict=True)):
            yield Leaf(loop, self.does, {lane: piece.copies}, lane, piece.lanes, times,
                       piece.filled, is_remainder=n > 0, pipeline_stage=self.step)  # fmt: skip

    @property
    def _contiguous(self) -> StageLoop:
        """The axis of a reduction along contiguous data."""
        along = contiguous_reduction(self.view)
        return next(axis for axis in self.view.reduce if axis.name == along)

    def _sum_walk(self, parts: Mapping[str, Number]) -> Walk:
        axis = self._contiguous
        extent = parts.get(axis.name, axis.extent)
        return in_steps(extent, fitting(self.lanes, axis.extent), self.vectors)

    def sum_loops(self, parts: Mapping[str, Number]) -> list[LeafLoop]:
        """Return the loops of the pass of a reduction along contiguous data. `parts` is as in
        `sum_along`."""
        view, axis = self.view, self._contiguous
        around = self.around(self.row, view.spatial[self.shared :])
        for other in (x for x in view.reduce if x is not axis):
            around = LeafLoop(self.along(other), parts.get(other.name, other.extent), around)
        walk = self._sum_walk(parts)
        return [LeafLoop(self.along(axis), piece.trips, around) for piece in walk]

    def sum_along(
        self,
        merged: Statement | None = None,
        loops: Sequence[LeafLoop] = (),
        parts: Mapping[str, Number] | None = None,
        times: Number = 1,
    ) -> Iterator[Leaf]:
        """Yield the leaves of a reduction with lanes along the reduction axis. The leaves of the
        horizontal sum and of the store of the result follow.

        `merged` is the statement of a stage that is computed in the same pass, or None. `loops` are
        the existing loops of the pass if other stages share them. `parts` has the extent of one
        part of each divided axis.
        """
        view, there, axis = self.view, parts or {}, self._contiguous
        walk = self._sum_walk(there)
        loops = loops or self.sum_loops(there)
        row = loops[0]
        for _ in view.reduce:
            assert row.parent is not None, "the pass is inside the row"
            row = row.parent
        cut = [x.extent % there[x.name] > 0 for x in view.reduce if x.name in there]
        is_tested = np.any(np.asarray(cut), axis=0)
        lane, lanes = self.names[axis.name], walk[0].lanes
        for n, (piece, loop) in enumerate(zip(walk, loops, strict=True)):
            for some in (merged, self.does) if merged else (self.does,):
                yield Leaf(
                    loop, some, {lane: piece.copies}, lane, piece.lanes, times,
                    piece.filled if some is merged else 1,
                    is_tested, piece.copies if some is self.does else 0,
                    is_remainder=n > 0, pipeline_stage=self.step,
                )  # fmt: skip
        copies = walk[0].copies
        add = Operations(frozenset({"sums", "lanes"}), 1, 1)
        both = np.asarray(copies) > 1
        yield Leaf(row, Statement((add,)), {"sums": copies}, "lanes", lanes, times * both,
                   extra_registers=copies + 1, unrolls_reduction=both)  # fmt: skip
        steps = ceil(log2(lanes))
        add = Operations(frozenset({"lanes"}), 2 * steps, steps)
        yield Leaf(row, Statement((add,)), {}, "lanes", lanes, times, extra_registers=2)
        yield Leaf(row, Statement(writes=self.own), frequency=times)

    def along_columns(self, chunk: Number = 0, threads: Number = 1) -> Iterator[Leaf]:
        """Yield the leaves of a reduction with vectors along an axis of the result. `chunk` rows
        are summed in one pass over the columns (0: all rows). `threads` divide the columns."""
        view = self.view
        if not view.reduce:  # a reduction over one element is elementwise
            yield from self.elementwise()
            return
        own = view.spatial[self.shared :]
        axis = vector_axis(view, own)
        if axis is None:
            around = self.around(self.row, own)
            yield Leaf(self.around(around, view.reduce), self.does, accumulators=1)
            yield Leaf(around, Statement(writes=self.own))
            return
        count = partial(_columns, axis.extent, self.lanes)
        tasks, *numbers = map_unique(count, self.vectors, threads)
        task = LeafLoop(self.along(axis), np.ceil(tasks), self.row, tasks > 1, tasks)
        around = self.around(task, (x for x in own if x is not axis))
        *others, last = view.reduce
        is_chunked = (chunk > 0) & (last.extent > chunk)
        chunks = np.where(is_chunked, -(-last.extent // np.maximum(chunk, 1)), 1)
        every = prod(x.extent for x in view.reduce)
        outside = around
        for other in others:
            outside = LeafLoop(self.along(other), np.where(is_chunked, other.extent, 1), outside)
        outside = LeafLoop(self.along(last), chunks, outside)
        is_short = unrolls_steps(np.where(is_chunked, chunk, every))
        steps = np.where(is_chunked, last.extent / chunks, every)
        is_tested = is_chunked & (last.extent % np.maximum(chunk, 1) > 0)
        lane, add = self.names[axis.name], Operations(self.along(axis), 1, 1)
        for n, piece in enumerate((VectorSegment(*numbers[:4]), VectorSegment(*numbers[4:]))):
            trips, copies, lanes, filled = piece
            columns = LeafLoop(self.along(axis), trips, outside)
            rows = columns
            for step in view.reduce:
                rows = LeafLoop(self.along(step), np.where(is_short, 1, step.extent), rows)
            unrolled = {lane: copies, self.names[last.name]: np.where(is_short, steps, 1)}
            yield Leaf(rows, self.does, unrolled, lane, lanes, 1, 1, is_tested & (copies == 1),
                       copies, unrolls_reduction=is_short, is_remainder=n > 0,
                       pipeline_stage=self.step)  # fmt: skip
            for times, does in (
                (is_chunked, Statement((add,), (self.own,), self.own)),
                (~is_chunked, Statement(writes=self.own)),
            ):
                yield Leaf(columns, does, {lane: copies}, lane, lanes, times, filled,
                           is_remainder=n > 0, pipeline_stage=self.step)  # fmt: skip


def _columns(extent: int, lanes: int, vectors: int, threads: int) -> tuple[float, ...]:
    """Return nine numbers: the tasks into which threads divide the columns, then the four fields of
    `VectorSegment` for the full iterations and for the remainder of a task."""
    piece, copies = columns_of(extent, lanes, vectors, threads)
    if piece < extent:
        tasks, groups, every = (-(-extent // n) for n in (piece, lanes * copies, lanes))
        main = (groups / tasks, copies, lanes, every / (groups * copies))
        return (groups * lanes * copies / piece, *main, 0, 1, 1, 1)
    whole, left = divmod(extent, copies * lanes)
    if not whole:
        return (1, 1, 1, extent, 1, 0, 1, 1, 1)
    count = -(-left // lanes)
    return (1, whole, copies, lanes, 1, count > 0, max(count, 1), lanes if count > 1 else left, 1)
