"""The sketch of a scan (cumulative sum, product, maximum or minimum) along one axis.

The scan axis is traversed in order; all other axes are independent. If the results are contiguous
along the scan axis, each vector holds consecutive elements of it: its lanes are scanned in
registers, and the last element of the vector before is added (`nest/scans.py`). Several rows are
interleaved, because each vector waits for the one before.

    rows (parallel) | vectors of the scan axis | interleaved rows | lanes

Otherwise, vectors are along the contiguous axis, in blocks of columns. Wide blocks read and write
long runs of memory; narrow ones keep the previous row in the first cache.

    other axes, blocks of columns (parallel) | scan axis | columns of a block | vectors | lanes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2, prod
from typing import Generic

import numpy as np

from ..arrays import BoolArray, IntArray
from ..leaves import AccessPattern, Leaf, Operations, Statement
from ..nest.loop_ir import LoopKind
from ..plan import Level, Outline, Plan
from ..primitives import Parallel
from ..target import Target
from ..workload.tensors import Scan
from ..workload.workload import Workload
from .analysis.stages import StageLoop, StageView, once
from .knobs import POWERS, Knobbed, N, knob, parallel_knob, settings
from .statements import own_names, own_place, stage_outline, statement_of
from .writer import BLOCKS, BODY, STEPS, TraceWriter, called

BLOCK_VECTORS = tuple(2**n for n in range(12))
"""Values of the knob `block_vectors`, as far as a row has so many vectors."""


@settings
class ScanSettings(Generic[N]):
    """Knobs of a scan."""

    interleave: N = knob(lambda sketch: sketch.widths)
    """Rows, or vectors of columns, that one iteration of the innermost loop computes."""
    block_vectors: N = knob(lambda sketch: sketch.block_widths, absent=1)
    """Vectors in a block of columns."""
    parallel: N = parallel_knob(lambda sketch: sketch.others > 1)


@dataclass(frozen=True)
class ScanSketch(Knobbed[ScanSettings[IntArray], ScanSettings[int]]):
    """The sketch of one scan."""

    workload: Workload
    view: StageView
    scan: Scan
    target: Target

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

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return whether a block has as many vectors as an iteration, shape (P,)."""
        v = self.values(settings)
        ok: BoolArray = np.full(len(v.interleave), self.is_contiguous)
        return ok | (v.block_vectors >= v.interleave)

    @cached_property
    def _outline(self) -> Outline:
        loops = (*self.outer, self.along, *(() if self.is_contiguous else (self.last,)))
        return stage_outline(self.view, loops, once(self.view.reads))

    def plan(self, settings: IntArray) -> Plan:
        """Return the plan with the loops of the module docstring."""
        v = self.values(settings)
        shared, several = v.parallel > 0, v.interleave
        at = {axis.name: number for number, axis in enumerate(self._outline.axes)}
        outer, along, last = (
            [at[x.name] for x in self.outer],
            at[self.along.name],
            at[self.last.name],
        )
        lanes = Level(last, 1, role=BODY, kind=LoopKind.VECTORIZED)
        if not self.is_contiguous:
            levels = [
                *(Level(axis, 1, shared, BLOCKS) for axis in outer),
                Level(last, v.block_vectors * self.lanes, shared, BLOCKS),
                Level(along, 1, role=STEPS),
                Level(last, several * self.lanes, role=STEPS),
                Level(last, self.lanes, role=BODY, kind=LoopKind.UNROLLED),
                lanes,
            ]
        elif outer:
            *most, row = outer
            levels = [
                *(Level(axis, 1, shared, BLOCKS) for axis in most),
                Level(row, several, shared, BLOCKS),
                Level(along, self.lanes, role=STEPS),
                Level(row, 1, role=BODY, kind=LoopKind.UNROLLED),
                lanes,
            ]
        else:
            levels = [Level(along, self.lanes, role=STEPS), lanes]
        return Plan(self._outline, tuple(levels), len(several))

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
            own,
            is_guarded=body.is_guarded,
            dtype=body.dtype,
        )

    def leaves(self, settings: IntArray) -> Iterator[Leaf]:
        """Yield the leaf of all vectors. In the last iteration along a row of columns, some vectors
        may have no elements."""
        plan = self.plan(settings)
        loop, copies = plan.leaf_loops[-1], plan.unroll_factors()
        filled = 1 if self.is_contiguous else plan.mean_trips[-2] / copies[self.last.name]
        lanes = (self.last.name, self.lanes)
        yield Leaf(loop, self._statement, copies, *lanes, active_fraction=filled)

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
        return self.with_defaults({"interleave": several, "block_vectors": block})

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Emit the loops of a setting. Only the last vector along a contiguous scan is masked."""
        levels = self.plan(np.asarray([setting])).loops()
        made = writer.arrange(levels)
        task = writer.fuse_all(called(made, BLOCKS))
        whole, rest = divmod(self.along.extent, self.lanes)
        if self.is_contiguous and whole and rest:
            (steps,) = called(made, STEPS)
            writer.partition(steps, whole)
        if self.chosen(setting).parallel and task:
            writer.do(Parallel(task))
