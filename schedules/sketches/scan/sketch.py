"""The sketch of a scan (cumulative sum, product, maximum or minimum) along one axis.

The scan axis is traversed in order; all other axes are independent. If the results are contiguous
along the scan axis, each vector holds consecutive elements of it: its lanes are scanned in
registers, and the last element of the vector before is added (`nest/scans.py`). Several rows are
interleaved, because each vector waits for the one before.

    rows (parallel) | vectors of the scan axis | interleaved rows | lanes

Otherwise, vectors are along the contiguous axis, in blocks of columns. Wide blocks read and write
long runs of memory; narrow ones keep the previous row in the first cache.

    other axes, blocks of columns (parallel) | scan axis | columns of a block | vectors | lanes

If there are few rows, threads divide each row: they sum the parts of a row, then scan them. The
parts that are in turn at the same time may be small enough to be read from a cache by the scan.

    parts in turn | part of each thread (parallel) | one of the loops above

An elementwise stage that reads the scan at its own position is computed in the same loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2, prod
from typing import Generic

import numpy as np

from ...arrays import BoolArray, IntArray
from ...hardware import USABLE_SHARE
from ...leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ...nest.loop_ir import LoopKind
from ...plan import Level, Outline, Plan
from ...primitives import Stream
from ...target import Target
from ...workload.tensors import Scan
from ...workload.workload import Workload
from ..analysis.stages import StageLoop, StageView, once
from ..knobs import (
    POWERS,
    Knobbed,
    N,
    knob,
    nontemporal_knob,
    nontemporal_values,
    parallel_knob,
    settings,
    stores_whole_lines,
)
from ..statements import own_names, own_place, stage_outline, statement_of
from ..writer import BLOCKS, BODY, STEPS, TraceWriter
from .trace import SHARES, TOTAL_VECTORS, TURNS, ScanTrace

BLOCK_VECTORS = tuple(2**n for n in range(12))
"""Values of the knob `block_vectors`, as far as a row has so many vectors."""

SHARE_STEPS = tuple(4**n for n in range(4, 9))
"""Values of the knob `row_share`, as far as they are useful."""

LEAST_STEPS = 64
"""Fewest vectors of a row for each thread with which it pays to divide the row: a parallel region
takes about as long as some hundred vectors."""


@settings
class ScanSettings(Generic[N]):
    """Knobs of a scan."""

    interleave: N = knob(lambda sketch: sketch.widths)
    """Rows, or vectors of columns, that one iteration of the innermost loop computes."""
    block_vectors: N = knob(lambda sketch: sketch.block_widths, absent=1)
    """Vectors in a block of columns."""
    parallel: N = parallel_knob(lambda sketch: sketch.others > 1)
    row_share: N = knob(lambda sketch: sketch.row_shares)
    """Vectors, or positions if lanes are across the scan, of a row that a thread scans at a time. 0
    if threads do not divide rows."""
    nontemporal_stores: N = nontemporal_knob(lambda sketch: sketch.nontemporal_choices)


@dataclass(frozen=True)
class ScanSketch(Knobbed[ScanSettings[IntArray], ScanSettings[int]]):
    """The sketch of one scan, with the elementwise stage after it if there is a `reader`."""

    workload: Workload
    view: StageView
    scan: Scan
    target: Target
    reader: StageView | None = None

    name = "scan"
    SETTINGS = ScanSettings

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.view.dtype)

    @cached_property
    def along(self) -> StageLoop:
        """The axis of the scan."""
        return next(loop for loop in self.view.spatial if loop.dim == self.scan.dim)

    @cached_property
    def last(self) -> StageLoop:
        """The axis along which the results are contiguous, which has the lanes."""
        long = [loop for loop in self.view.spatial if loop.extent > 1]
        return (long or self.view.spatial)[-1]

    @property
    def is_contiguous(self) -> bool:
        """Whether the lanes are along the scan axis."""
        return self.last is self.along

    @cached_property
    def outer(self) -> tuple[StageLoop, ...]:
        """The axes without lanes, except the scan axis."""
        return tuple(x for x in self.view.spatial if x not in (self.along, self.last))

    @property
    def columns(self) -> int:
        """The number of vectors of a row, if lanes are across the scan."""
        return 1 if self.is_contiguous else -(-self.last.extent // self.lanes)

    @property
    def others(self) -> int:
        """The number of independent scans, or of vectors of them."""
        return prod(x.extent for x in self.outer) * self.columns

    @property
    def widths(self) -> tuple[int, ...]:
        """The values of the knob `interleave`."""
        if not self.is_contiguous:
            return tuple(n for n in POWERS if n < 2 * self.columns)
        rows = self.outer[-1].extent if self.outer else 1
        return tuple(n for n in POWERS if rows % n == 0)

    @property
    def block_widths(self) -> tuple[int, ...]:
        """The values of the knob `block_vectors`, none if lanes are along the scan."""
        if self.is_contiguous:
            return ()
        return tuple(n for n in BLOCK_VECTORS if n < 2 * self.columns)

    @property
    def is_hidden(self) -> bool:
        """Whether only the reader needs the elements of the scan."""
        return self.reader is not None and self.view.name not in self.workload.outputs

    @property
    def unit(self) -> int:
        """Positions along the scan that one step computes."""
        return self.lanes if self.is_contiguous else 1

    @property
    def steps(self) -> int:
        """Steps along the scan that threads divide: whole ones, unless a reader needs the elements
        after them in registers, too (`ScanTrace`)."""
        extent = self.along.extent + (self.unit - 1 if self.reader else 0)
        return extent // self.unit

    @property
    def share(self) -> int:
        """Steps along the scan for each thread if they divide the whole row."""
        return -(-self.steps // self.target.threads)

    @cached_property
    def row_shares(self) -> tuple[int, ...]:
        """The values of the knob `row_share`, none if there are enough rows for all threads.

        Shares that are in turn are read from a private cache when they are scanned. The next turn
        reads the last element of the one before, so the scan must be stored.
        """
        threads = self.target.threads
        if threads == 1 or self.others >= 2 * threads or self.share < LEAST_STEPS:
            return ()
        step = self.unit * self.view.dtype.bytes * (1 if self.is_contiguous else self.last.extent)
        most = min(int(self.target.own_cache_bytes * USABLE_SHARE) // (2 * step), self.share - 1)
        return (0, *(n for n in SHARE_STEPS if n <= most and not self.is_hidden), self.share)

    @property
    def default_share(self) -> int:
        """Index of the default in `row_shares`: the largest if rows are in the last cache, else the
        largest that is in a private one. 0 if every thread has a row."""
        if self.others >= self.target.threads:
            return 0
        last = max((cache.bytes for cache in self.target.caches), default=0)
        fits = 2 * self.workload.tensors[self.view.name].bytes <= USABLE_SHARE * last
        return max(len(self.row_shares) - (1 if fits or len(self.row_shares) == 2 else 2), 0)

    @cached_property
    def nontemporal_choices(self) -> tuple[int, ...]:
        """The values of the knob `nontemporal_stores`. A reader of the stored elements would wait
        for them."""
        if self.reader is not None and not self.is_hidden:
            return (0,)
        name = (self.reader or self.view).name
        return nontemporal_values(self.workload, name, self.target, flat=self.others == 1)

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether a block has as many vectors as an iteration, threads do not divide both
        rows and parts of rows, and non-temporal stores fill whole lines, shape (P,)."""
        v = self.values(settings)
        ok: BoolArray = np.full(len(v.interleave), self.is_contiguous)
        ok |= v.block_vectors >= v.interleave
        many = int(self.target.threads > 1 and self.others > 1)
        ok &= (v.row_share == 0) | (v.parallel == many)
        vector = self.lanes * (self.reader or self.view).dtype.bytes
        run = vector if self.is_contiguous else v.interleave * vector
        whole = stores_whole_lines(v.nontemporal_stores, run, self.target.line_bytes)
        if self.is_contiguous:
            whole |= v.interleave == 1  # one row is stored in order
        return ok & whole

    @cached_property
    def _outline(self) -> Outline:
        loops = (*self.outer, self.along, *(() if self.is_contiguous else (self.last,)))
        # The results of the reader take the place of a scan that is not stored.
        epilogue = self.reader if self.is_hidden else None
        return stage_outline(self.view, loops, once(self.view.reads), epilogue=epilogue)

    def plan(self, settings: IntArray) -> Plan:
        """Return the plan with the loops of the module docstring."""
        v = self.values(settings)
        divided = v.row_share > 0
        shared, several = (v.parallel > 0) & ~divided, v.interleave
        at = {axis.name: number for number, axis in enumerate(self._outline.axes)}
        outer, along, last = (
            [at[x.name] for x in self.outer],
            at[self.along.name],
            at[self.last.name],
        )
        share = v.row_share * self.unit
        turn = share * self.target.threads
        levels = [
            Level(along, turn, role=TURNS, present=divided & (turn < self.steps * self.unit)),
            Level(along, share, divided, SHARES, present=divided),
        ]
        levels = levels if self.row_shares else []
        lanes = Level(last, 1, role=BODY, kind=LoopKind.VECTORIZED)
        if not self.is_contiguous:
            levels += [
                *(Level(axis, 1, shared, BLOCKS) for axis in outer),
                Level(last, v.block_vectors * self.lanes, shared, BLOCKS),
                Level(along, 1, role=STEPS),
                Level(last, several * self.lanes, role=STEPS),
                Level(last, self.lanes, role=BODY, kind=LoopKind.UNROLLED),
                lanes,
            ]
        elif outer:
            *most, row = outer
            levels += [
                *(Level(axis, 1, shared, BLOCKS) for axis in most),
                Level(row, several, shared, BLOCKS),
                Level(along, self.lanes, role=STEPS),
                Level(row, 1, role=BODY, kind=LoopKind.UNROLLED),
                lanes,
            ]
        else:
            levels += [Level(along, self.lanes, role=STEPS), lanes]
        nontemporal = v.nontemporal_stores > 0
        return Plan(self._outline, tuple(levels), len(several), nontemporal=nontemporal)

    @cached_property
    def _statement(self) -> Statement:
        """The computation of an element from the one before. Lanes along the scan axis are scanned
        in log2(lanes) steps of a shuffle and an operation."""
        names = own_names(self.view)
        body = statement_of(self.view, names)
        steps = ceil(log2(self.lanes)) if self.is_contiguous else 0
        combine = Operations(frozenset(names.values()), 1 + 2 * steps, 1 + steps)
        own = own_place(self.view, names)
        before = AccessPattern(own.tensor, ("before", *own.key), own.steps)
        return Statement(
            (*body.operations, combine),
            (*body.reads, before),
            None if self.is_hidden else own,
            is_guarded=body.is_guarded,
            dtype=body.dtype,
        )

    @cached_property
    def _epilogue(self) -> Statement | None:
        """The computation of the reader, which finds the element of the scan in a register."""
        if self.reader is None:
            return None
        pairs = zip(self.reader.spatial, self.view.spatial, strict=True)
        does = statement_of(self.reader, {own.name: loop.name for own, loop in pairs})
        kept = tuple(read for read in does.reads if read.tensor != self.view.name)
        return Statement(
            does.operations, kept, does.writes, is_guarded=does.is_guarded, dtype=does.dtype
        )

    def leaves(self, settings: IntArray) -> Iterator[Leaf]:
        """Yield the leaf that sums the parts of rows, then the leaves of all vectors. In the last
        iteration along a row of columns, some vectors may have no elements."""
        plan, v = self.plan(settings), self.values(settings)
        loop, copies = plan.leaf_loops[-1], plan.unroll_factors()
        filled = 1 if self.is_contiguous else plan.mean_trips[-2] / copies[self.last.name]
        lanes = (self.last.name, self.lanes)
        if self.row_shares:
            yield self._totals(v)
        for does in (self._statement, self._epilogue):
            if does is not None:
                yield Leaf(loop, does, copies, *lanes, active_fraction=filled)

    def _totals(self, v: ScanSettings[IntArray]) -> Leaf:
        """Return the leaf that sums the parts of rows, except the last part of each turn."""
        names = own_names(self.view)
        body = statement_of(self.view, names)
        share, threads = np.maximum(v.row_share, 1), self.target.threads
        # A part is divided further if lanes are along it (`ScanTrace`).
        pieces = threads if self.is_contiguous else 1
        is_divided, tasks = v.row_share > 0, (threads - 1) * pieces
        count = np.where(is_divided, np.ceil(self.steps / (share * threads)), 1)
        turns = LeafLoop(frozenset({self.along.name}), count)
        trips = np.where(is_divided, tasks, 1)
        rows = LeafLoop(frozenset({self.along.name}), trips, turns, is_divided & (tasks > 1))
        for axis in (*self.outer, *(() if self.is_contiguous else (self.last,))):
            extent = self.columns if axis is self.last else axis.extent
            rows = LeafLoop(frozenset({axis.name}), extent, rows)
        steps = LeafLoop(frozenset({self.along.name}), share / pieces / TOTAL_VECTORS, rows)
        add = Operations(frozenset(names.values()), 1, 1)
        does = Statement(
            (*body.operations, add),
            body.reads,
            reduction_axes=frozenset({self.along.name}),
            is_guarded=body.is_guarded,
            dtype=body.dtype,
        )
        copies = {self.along.name: TOTAL_VECTORS}
        lanes = (self.last.name, self.lanes)
        return Leaf(
            steps, does, copies, *lanes, is_divided,
            accumulators=TOTAL_VECTORS, unrolls_reduction=True,
        )  # fmt: skip

    @property
    def default_block(self) -> int:
        """Index of the default in `block_widths`: the widest block of which every thread has
        one."""
        rows = prod(x.extent for x in self.outer)
        shared = [
            n for n in self.block_widths if rows * -(-self.columns // n) >= self.target.threads
        ]
        return max(len(shared) - 1, 0)

    def default(self) -> tuple[int, ...]:
        """Return the default setting: several rows at a time, or a block of columns for every
        thread."""
        block = self.default_block
        several = min(2, block) if self.block_widths else 2
        places = {"interleave": several, "block_vectors": block, "row_share": self.default_share}
        return self.with_defaults(places)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Emit the loops of a setting."""
        v, levels = self.chosen(setting), self.plan(np.asarray([setting])).loops()
        # A stored vector is read again from a register or from a small buffer.
        is_narrow = not self.is_contiguous and v.interleave == v.block_vectors
        streamed = v.nontemporal_stores > 0
        is_kept = self.reader is not None or (not self.is_contiguous and (streamed or is_narrow))
        ScanTrace(
            writer,
            self.view.name,
            self.along.name,
            self.lanes,
            self.is_contiguous,
            is_kept,
            self.is_contiguous or is_narrow,
        ).write(levels, self.reader.name if self.reader else "", v.parallel > 0)
        if streamed:
            writer.do(Stream((self.reader or self.view).name))
