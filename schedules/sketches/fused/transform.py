"""The transform sketch: elementwise stages that pick one of a few formulas by an index.

Such an axis (`select(k == 0, .., select(k == 1, .., ..))`, or `h % 4 == 0`) is short, and written
out it costs nothing: every copy has its own formula left. What is constant along a vector axis is
done for a vector at once:

    tiles (parallel) | vectors of the contiguous axis | formulas, written out | lanes

A chain of such stages is computed together, the values between them in registers. The small dense
transforms of fast convolutions look like this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from ...algebra.affine import Affine, Eq0, Mod, Var
from ...algebra.scalar import All, Scalar, Select, loads, walk
from ...arrays import IntArray
from ...nest.loop_ir import LoopKind
from ...plan import Access, Axis, Level, Outline, Plan
from ...primitives import ComputeAt, Parallel, Unroll, Vectorize
from ...space import Knob
from ..analysis import Loop, StageView
from ..groups import FusionGroup, Stages, grown
from ..writer import TraceWriter, fitting
from .group_sketch import TASKS_A_THREAD, GroupSketch

MAX_FORMULAS = 8
"""Longest axis that is written out."""

AROUND, WITHIN, OUTSIDE = 0, 1, 2
"""Where stages inside are computed: around all formulas of a vector, within each of the first axis
(half the registers), or the same with that axis outside all loops, which then run once for each of
its formulas. That reads the data again, and writes to fewer places at a time: planes a power of two
apart compete for the same cache sets."""


def choices(value: Scalar) -> dict[str, int]:
    """Loops that choose a formula, and the period of the choice; 0 where it is the loop itself."""
    found: dict[str, int] = {}
    for node in walk(value):
        if isinstance(node, Select) and isinstance(node.cond, All):
            for cond in node.cond.conds:
                if isinstance(cond, Eq0):
                    found |= _chooser(cond.index)
    return found


def _chooser(index: Affine) -> dict[str, int]:
    if len(index.terms) != 1:
        return {}
    match index.terms[0][0]:
        case Var(name):
            return {name: 0}
        case Mod(numerator, divisor) if len(numerator.terms) == 1 and not numerator.const:
            atom, coefficient = numerator.terms[0]
            if isinstance(atom, Var) and coefficient == 1:
                return {atom.name: divisor}
        case _:
            pass
    return {}


def is_transform(view: StageView) -> bool:
    """Whether the stage picks formulas by short axes and is elementwise otherwise."""
    found = choices(view.value)
    extents = {loop.name: loop.extent for loop in view.spatial}
    sizes = [period or extents.get(name, MAX_FORMULAS + 1) for name, period in found.items()]
    return bool(sizes) and not view.is_reduction and all(n <= MAX_FORMULAS for n in sizes)


def all_choices(value: Scalar, inside: Sequence[StageView]) -> dict[str, int]:
    """`choices` of a stage's expression, and of the stages `inside` that it reads: an index that
    chooses there is chosen here as well."""
    dims: dict[str, set[int]] = {}
    for view in inside:
        found = choices(view.value) | _passed_on(view.value, dims)
        dims[view.name] = {loop.dim for loop in view.spatial if loop.name in found}
    return choices(value) | _passed_on(value, dims)


def _passed_on(value: Scalar, dims: dict[str, set[int]]) -> dict[str, int]:
    """Loops that index dimensions `dims` of other stages."""
    found: dict[str, int] = {}
    for load in loads(value):
        for d in dims.get(load.tensor, ()):
            found |= _chooser(load.index[d])
    return found


def transform_group(stages: Stages, view: StageView) -> FusionGroup | None:
    """Stage `view` with the transforms that only it needs; None if it is none itself."""

    def common(other: StageView, reader: StageView) -> int:
        return 0 if is_transform(other) and not other.presplit else -1

    return grown(stages, FusionGroup(view), common, least=0) if is_transform(view) else None


@dataclass(frozen=True)
class TransformSketch(GroupSketch):
    """See the module. Knob `place` says where stages inside are computed:
    see `AROUND`."""

    @property
    def name(self) -> str:
        return "transform"

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        parallel = self.target.threads > 1 and self.tasks > 1
        return (
            Knob("place", self._places()),
            Knob("parallel", (0, 1) if parallel else (0,)),
        )

    def _places(self) -> tuple[int, ...]:
        within = (WITHIN,) if self.group.inside else ()
        whole = all(period == 0 for period in self.choices.values())
        return (AROUND, *within, *((OUTSIDE,) if whole else ()))

    # What follows walks through expressions: once, not for every array of settings.

    @cached_property
    def choices(self) -> dict[str, int]:
        return all_choices(self.group.last.value, self.group.inside)

    @cached_property
    def planes(self) -> list[Loop]:
        """Loops that choose formulas, outer to inner."""
        return [loop for loop in self.group.last.spatial if loop.name in self.choices]

    @cached_property
    def written(self) -> int:
        """Copies of the last stage's statement once its formulas are written out."""
        periods = ((loop.extent, self.choices[loop.name]) for loop in self.planes)
        return prod(min(period or extent, extent) for extent, period in periods)

    @cached_property
    def tasks(self) -> int:
        """Iterations of the parallel loop, about."""
        points = prod(loop.extent for loop in self.group.last.spatial[:-1])
        return max(points // self.written, 1)

    @cached_property
    def operations(self) -> float:
        views = self.group.stages
        return sum(v.points * max(v.operations / _formulas(v), 1.0) for v in views)

    @cached_property
    def reads(self) -> float:
        """Elements read from tensors outside the group."""
        inside = {view.name for view in self.group.inside}
        return sum(
            v.points * sum(ld.tensor not in inside for ld in loads(v.value)) / _formulas(v)
            for v in self.group.stages
        )

    @cached_property
    def _outline(self) -> Outline:
        """Tiles, and elements of a tile."""
        inside = {view.name for view in self.group.inside}
        found = {
            r.tensor: Access(r.tensor, r.dtype.bytes, ((1, 0), (0, 1)))
            for view in self.group.stages
            for r in view.reads
            if r.tensor not in inside
        }
        last = self.group.last
        out = Access(last.name, last.dtype.bytes, ((1, 0), (0, 1)), is_output=True)
        tile = max(last.points // self.tasks, 1)
        return Outline((Axis("tiles", self.tasks), Axis("tile", tile)), (*found.values(), out))

    def plan(self, settings: IntArray) -> Plan:
        """Tile by tile."""
        return Plan(self._outline, (Level(0, 1), Level(1, 1)), len(np.atleast_2d(settings)))

    def default(self) -> tuple[int, ...]:
        """Values between stages in registers all at once, every thread."""
        return self.clipped({"place": 0, "parallel": 1})

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other groups' steps already."""
        v, w, last = self.chosen(setting), writer, self.group.last
        w.do(*last.presplit)
        formulas = self._formula_loops(w)
        leaf, chain = w.writer_of(last.name)
        others = [loop.var for loop in chain if loop.var not in formulas]
        lane = w.best_vector_loop(leaf, others)
        outer = [name for name in others if name != lane]
        inner: list[str] = []
        if lane is not None:
            vectors, *inner = w.split(lane, fitting(self.lanes, w.loop(lane).extent))
            outer.append(vectors)
        outside, within = (formulas[:1], formulas[1:]) if v["place"] == OUTSIDE else ([], formulas)
        w.reorder(*outside, *outer, *within, *inner)
        place = outer[-1] if outer else formulas[0]
        if v["place"] == WITHIN and len(formulas) > 1:
            place = formulas[0]
        for view in reversed(self.group.inside):
            w.do(ComputeAt(view.name, place, register=True))
        for view in self.group.inside:
            _write_out(w, view.name, place, self.lanes)
        if not inner:
            _write_out(w, last.name, place, self.lanes)
        w.do(*(Vectorize(name) for name in inner if w.loop(name).extent > 1))
        if v["parallel"] and outer:
            tasks = self._tasks(w, outer, outside) if outside else outer
            w.do(Parallel(w.fuse_all(tasks)))
        w.do(*(Unroll(name) for name in formulas if w.loop(name).kind is LoopKind.SERIAL))

    def _formula_loops(self, w: TraceWriter) -> list[str]:
        """The loops that choose formulas, outer to inner, split off where a choice is periodic."""
        leaf, _ = w.writer_of(self.group.last.name)
        for loop, period in all_choices(leaf.value, self.group.inside).items():
            if period and w.loop(loop).extent > period:
                w.split(loop, period)
        leaf, chain = w.writer_of(self.group.last.name)
        found = all_choices(leaf.value, self.group.inside)
        return [loop.var for loop in chain if loop.var in found]

    def _tasks(self, w: TraceWriter, outer: list[str], outside: list[str]) -> list[str]:
        """As many of the loops as give enough tasks, so that a formula loop stays outside the
        others."""
        shared, tasks = [], 1
        for name in outer:
            if tasks < TASKS_A_THREAD * self.target.threads:
                shared.append(name)
                tasks *= w.loop(name).extent
        w.reorder(*shared, *outside)
        return shared


def _write_out(w: TraceWriter, name: str, place: str, lanes: int) -> None:
    """Vectorise a stage along its own contiguous loop if that is short, and write out the rest."""
    leaf, _ = w.writer_of(name)
    own = [loop.var for loop in w.own_loops(name, inside=place)]
    lane = w.best_vector_loop(leaf, [n for n in own if w.loop(n).extent <= lanes])
    others = [n for n in own if n != lane]
    if lane:
        w.reorder(*others, lane)
    w.do(*(Unroll(n) for n in others))
    if lane:
        w.do(Vectorize(lane))


def _formulas(view: StageView) -> int:
    """How many formulas the stage's expression holds."""
    return 1 + sum(
        isinstance(n, Select) and isinstance(n.cond, All) and any(
            isinstance(c, Eq0) for c in n.cond.conds
        )
        for n in walk(view.value)
    )  # fmt: skip
