"""The transposed-sum sketch: a reduction that reads one tensor along its loop and
another across it, as the diagonal of a product or a trace does.

Lanes lie along the axis that is contiguous in the straight reads; blocks of the other tensors are
read along the reduction, transposed in registers and added up vector by vector. Where the result
has no such axis the reduction keeps one partial result for each of its places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, log2

import numpy as np

from ...arrays import IntArray
from ...leaves import Leaf, Loop, Operations, Place, Statement
from ...nest.loop_ir import LoopKind
from ...plan import Level, LoopLevel, Plan
from ...primitives import CacheWrite, RFactor, Unroll, Vectorize
from ...space import Knob
from ..analysis import SHORT_AXIS, Read, StageView
from ..analysis import Loop as Axis
from ..fused.reductions import ReductionSteps
from ..knobs import POWERS
from ..writer import BATCHES, BLOCKS, STEPS, TILES, WRITTEN_OUT, TraceWriter
from .blocks import BlockWriter, TransposedStage, Transposition, can_be_transposed
from .leaves import BlockNest


def find_transposed_sum(view: StageView) -> Transposition | None:
    """How the reduction `view` reads both ways, if it does: the sum is over `across`."""
    if not view.is_reduction or view.axis_splits or view.phase_steps or view.guards:
        return None
    last = view.spatial[-1:] if view.spatial and view.spatial[-1].extent > 1 else ()
    for along in (*last, *reversed(view.reduce)):
        for across in view.reduce:
            found = _blocks(view, across, along)
            if found is not None:
                return found
    return None


def _blocks(view: StageView, across: Axis, along: Axis) -> Transposition | None:
    if across is along or min(across.extent, along.extent) < SHORT_AXIS:
        return None
    transposed: list[Read] = []
    straight = 0
    for read in view.reads:
        step = read.element_stride(along.name)
        if step is None or read.conditional:
            return None
        if step > 1 and can_be_transposed(view, read, across, along):
            transposed.append(read)
        elif step not in (0, 1):
            return None
        straight += step == 1 and (read.element_stride(across.name) or 0) > 1
    return Transposition(across, along, tuple(transposed)) if transposed and straight else None


@dataclass(frozen=True)
class TransposedSumSketch(TransposedStage):
    """See the module. `columns` is the vectors of sums that are kept at once."""

    @property
    def name(self) -> str:
        return "transposed_sum"

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        whole = max(self.blocks.along.extent // self.lanes, 1)
        tasks = self.repeats * whole
        return (
            Knob("columns", tuple(n for n in POWERS[:3] if n <= whole)),
            Knob("parallel", (0, 1) if self.target.threads > 1 and tasks > 1 else (0,)),
        )

    def plan(self, settings: IntArray) -> Plan:
        """Axes that are walked as they are, pieces of a few vectors, and in each the reduction."""
        v, many = self.values(settings), self.has_many_others
        share, (across, along) = v["parallel"] > 0, self.pair
        levels = (
            *(Level(n, 1, share & many, BATCHES) for n in self.others),
            Level(along, v["columns"] * self.lanes, share & (not many), TILES),
            *(Level(n, 1, role=STEPS) for n in self.outside if n not in self.others),
            Level(across, self.lanes, role=BLOCKS),
            Level(along, self.lanes, role=WRITTEN_OUT, kind=LoopKind.UNROLLED),
            Level(across, 1, role=WRITTEN_OUT, kind=LoopKind.UNROLLED),
            Level(along, 1, role=WRITTEN_OUT, kind=LoopKind.VECTORIZED),
        )
        return Plan(self.outline, levels, len(share))

    def leaves(self, settings: IntArray) -> Sequence[Leaf]:
        """Pieces of a few vectors of sums, then vectors, then what is left; each over the whole
        reduction, in blocks. Where lanes are part of the reduction, they are added up behind it."""
        nest, along = BlockNest(self, self.plan(settings)), self.blocks.along
        whole, right, found = nest.whole(), nest.right, list[Leaf]()
        sums = Place("sums", ("sums",), {right: 1}) if along.reduce else nest.own
        (level,) = nest.levels[TILES]
        for part in whole.divided([level]):
            size = np.where(part.sides[right] == level.step, level.step, self.lanes)
            for piece in part.divided([replace(level, step=size)]):
                side = np.minimum(piece.sides[right], self.lanes)
                copies = piece.sides[right] // side
                for steps in piece.divided([*nest.levels[STEPS], *nest.levels[BLOCKS]]):
                    found += nest.block(steps, side, copies)
                found.append(Leaf(piece.loop, Statement(writes=sums), {right: copies}, right, side))
        if along.reduce:
            found += self._added_up(right, whole.loop, sums)
            found.append(Leaf(whole.loop, Statement(writes=nest.own)))
        return found

    def _added_up(self, right: str, loop: Loop, sums: Place) -> Iterator[Leaf]:
        """The sums of each result, in vectors where there are several."""
        several = any(x.extent > 1 for x in self.view.spatial)
        in_vectors = several and self.blocks.along.extent >= 2 * self.lanes
        width, halves = (self.lanes, ceil(log2(self.lanes))) if in_vectors else (1, 0)
        over = frozenset({right})
        walk = Loop(over, -(-self.blocks.along.extent // width), loop)
        add = Operations(over, 1, 1)
        yield Leaf(walk, Statement((add,), (sums,), over=over), {}, right, width, sums=1)
        end = Operations(frozenset({"lanes"}), 2 * halves, halves)
        yield Leaf(loop, Statement((end,)), {}, "lanes", width)

    def default(self) -> tuple[int, ...]:
        """Two vectors of sums, every thread."""
        return tuple(min(1, len(knob.values) - 1) for knob in self.knobs)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        levels = self.plan(np.asarray([setting])).loops()
        _Sum(writer, self, self.chosen(setting), levels).write()


class _Sum(BlockWriter):
    """Writes pieces of a few vectors of sums, each kept in registers over the whole reduction."""

    def __init__(
        self,
        writer: TraceWriter,
        sketch: TransposedStage,
        v: dict[str, int],
        levels: Sequence[LoopLevel],
    ) -> None:
        super().__init__(writer, sketch, v, levels)
        self.sums_lanes = sketch.blocks.along.reduce
        self.buffer = f"{self.name}.sums" if self.sums_lanes else self.name

    def write(self) -> None:
        """Write them: pieces, then vectors, then what is left of the lanes' loop."""
        w = self.w
        if self.sums_lanes:
            w.do(RFactor(self.along, self.buffer))
            self._add_up(f"{self.along}.rf")
        reduce = [x.loop for x in self.levels[STEPS] if w.has(x.loop)]
        fused = self.fused_outside(self.along, *reduce, self.across)
        (pieces,) = self.levels[TILES]
        parts = self.cut((self.along,), pieces.step, self.lanes)
        self.share(fused, [(self._piece(loop, size),) for (loop,), size in parts])

    def _add_up(self, along: str) -> None:
        """Add up the sums of each result, in vectors where there are several."""
        name, steps = self.name, ReductionSteps(self.w, self.lanes, 1)
        several = any(x.extent > 1 for x in self.sketch.view.spatial)
        if several and self.w.loop(along).extent >= 2 * self.lanes:
            steps.add_up(name, steps.factor(name, along), steps.place(name, ""))

    def _piece(self, along: str, size: int) -> str:
        """One part of the lanes' loop, whose pieces are `size` long; the loop over those."""
        w = self.w
        place, inner = w.split(along, size)
        middle, lane = w.split(inner, min(self.lanes, size))
        _, chain = w.writer_of(self.buffer, place)
        loops = [x.var for x in chain if x.reduce]
        *outside, across = loops
        w.reorder(*outside, across, middle, lane)
        self.made += 1
        w.do(CacheWrite(self.buffer, place, f"{self.name}.acc{self.made}"))
        for end in ("init", "out"):
            w.do(Unroll(f"{middle}.{end}"), Vectorize(f"{lane}.{end}"))
        for (walk, vector, lanes), height in self.cut((across, middle, lane), self.lanes):
            # Blocks of a part of the reduction: each is read, transposed and added up.
            _, step = w.split(walk, height)
            w.reorder(vector, step, lanes)
            self.read_blocks(vector, step)
            w.do(Unroll(vector), Unroll(step), Vectorize(lanes))
        return place
