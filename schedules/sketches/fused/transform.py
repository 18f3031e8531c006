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
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from ...algebra.affine import Affine, Eq0, FloorDiv, Mod, Var, var
from ...algebra.scalar import All, Scalar, Select, loads, walk
from ...arrays import IntArray
from ...leaves import Leaf, Loop, Operations, Place, Statement
from ...nest.loop_ir import LoopKind
from ...plan import Level, Outline, Plan, access_of, axes_of
from ...primitives import ComputeAt, Parallel, Unroll, Vectorize
from ...space import Knob
from ..analysis import SHORT_AXIS, StageView
from ..analysis import Loop as Axis
from ..groups import TASKS_A_THREAD, FusionGroup, GroupSketch, Stages, grown
from ..knobs import each
from ..vectors import fitting
from ..writer import TraceWriter
from .formulas import Formulas, Values, WrittenOut, written_out

AROUND, WITHIN, OUTSIDE = 0, 1, 2
"""Where stages inside are computed: around all formulas of a vector, within each of the first axis
(half the registers), or the same with that axis outside all loops, which then run once for each of
its formulas. That reads the data again, and writes to fewer places at a time: planes a power of two
apart compete for the same cache sets."""

_TILES, _FORMULAS, _LANES = (frozenset({axis}) for axis in ("tiles", "formulas", "lanes"))


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
    sizes = [period or extents.get(name, SHORT_AXIS + 1) for name, period in found.items()]
    return bool(sizes) and not view.is_reduction and all(n <= SHORT_AXIS for n in sizes)


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
        return 0 if is_transform(other) and not other.axis_splits else -1

    return grown(stages, FusionGroup(view), common, least=0) if is_transform(view) else None


@dataclass(frozen=True)
class TransformSketch(GroupSketch):
    """See the module. Knob `place` says where stages inside are computed:
    see `AROUND`."""

    name = "transform"

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        return Knob("place", self._places()), self.parallel_knob(self.tasks > 1)

    def _places(self) -> tuple[int, ...]:
        within = (WITHIN,) if self.group.inside else ()
        whole = all(period == 0 for period in self.choices.values())
        return (AROUND, *within, *((OUTSIDE,) if whole else ()))

    # What follows walks through expressions: once, not for every array of settings.

    @cached_property
    def choices(self) -> dict[str, int]:
        return all_choices(self.group.last.value, self.group.inside)

    @cached_property
    def planes(self) -> list[Axis]:
        """Loops that choose formulas, outer to inner."""
        return [loop for loop in self.group.last.spatial if loop.name in self.choices]

    @cached_property
    def periods(self) -> dict[str, int]:
        """After how many iterations the choice of each of the `planes` repeats: all that it has
        where the choice is the loop itself."""
        return {loop.name: self.choices[loop.name] or loop.extent for loop in self.planes}

    @cached_property
    def written(self) -> int:
        """Copies of the last stage's statement once its formulas are written out."""
        return prod(min(self.periods[loop.name], loop.extent) for loop in self.planes)

    @cached_property
    def tasks(self) -> int:
        """Iterations of the parallel loop, about."""
        return max(self.points // self.written, 1)

    @property
    def points(self) -> int:
        """Elements of the last stage that lie in lanes of the same number."""
        return prod(loop.extent for loop in self.group.last.spatial[:-1])

    @cached_property
    def width(self) -> int:
        """Lanes of a vector: all, or a power of two that a short axis fills."""
        return fitting(self.lanes, self.group.last.spatial[-1].extent)

    @cached_property
    def code(self) -> dict[int, WrittenOut]:
        """What is left once formulas are written out, for each of the places: of all formulas, or
        with those of the first axis outside."""
        group, last, first, inner = self.group, self.group.last, self.planes[0], self.planes[-1]
        masked = {view.name for view in group.stages if any(r.padded for r in view.reads)}
        if inner.extent % self.periods[inner.name]:  # others end loops
            masked.add(last.name)
        copies = self._copies({name: range(period) for name, period in self.periods.items()})
        stages = [Formulas(view) for view in group.stages]
        turns = [
            self._copies({**copies[last.name], first.name: [n]})
            for n in copies[last.name][first.name]
        ]
        apart = [written_out(stages, [turn], masked) for turn in turns]
        together = WrittenOut(*map(sum, zip(*apart, strict=True)))
        return {
            AROUND: written_out(stages, [copies], masked),
            WITHIN: written_out(stages, turns, masked),
            OUTSIDE: together._replace(live=max(turn.live for turn in apart)),
        }

    def _copies(self, copies: Values) -> dict[str, Values]:
        """Copies of all stages, for those of the last one: a stage inside has one along axes that
        its readers walk outside, as many as they have along those that choose their formulas, all
        where they pick elements."""
        found = {self.group.last.name: copies}
        for view in reversed(self.group.inside):
            own: dict[str, set[int]] = {}
            for reader in self.group.stages:
                there = found.get(reader.name, {})
                for read in (r for r in reader.reads if r.tensor == view.name):
                    for loop in view.spatial:
                        index = read.index[loop.dim]
                        named = index.vars() & there.keys()
                        if any(isinstance(atom, FloorDiv) for atom, _ in index.terms):
                            named = frozenset()
                        if named:
                            (name,) = named
                            own.setdefault(loop.name, set()).update(there[name])
                        elif not index.vars() and loop.extent > 1:
                            own.setdefault(loop.name, set()).update(range(loop.extent))
            found[view.name] = {name: sorted(values) for name, values in own.items()}
        return found

    @cached_property
    def _outline(self) -> Outline:
        """Tiles, and of each tensor the elements that a tile takes."""
        last, inside = self.group.last, self.group.names_inside
        reads = {r.tensor: r for view in self.group.stages for r in view.reads}
        tensors = [(r.tensor, r.dtype, prod(r.shape)) for r in reads.values()]
        tensors = [one for one in tensors if one[0] not in inside]
        tensors.append((last.name, last.dtype, last.outputs))
        axes = [("tiles", self.tasks)]
        axes += [(name, -(-size // self.tasks)) for name, _, size in tensors]
        found = [
            access_of(name, dtype.bytes, (var("tiles"), var(name)), [axis for axis, _ in axes])
            for name, dtype, _ in tensors
        ]
        return Outline(axes_of(axes), (*found[:-1], replace(found[-1], is_output=True)))

    def plan(self, settings: IntArray) -> Plan:
        """Tile by tile."""
        levels = tuple(Level(n, 1) for n in range(len(self._outline.axes)))
        return Plan(self._outline, levels, len(np.atleast_2d(settings)))

    def leaves(self, settings: IntArray) -> Sequence[Leaf]:
        """Tiles and vectors, with all formulas written out in them. Threads share all loops, or as
        many as give enough tasks where formulas stay inside."""
        v, last = self.values(settings), self.group.last
        is_outside, tiles, parts = v["place"] == OUTSIDE, *self._tiles
        enough = leading(tiles, TASKS_A_THREAD * self.target.threads)
        shared = [(v["parallel"] > 0) & (~is_outside | (n < enough)) for n in range(len(tiles))]
        steps, tasks = (
            prod(np.where(is_shared, n, 1) for is_shared, n in zip(shared, found, strict=True))
            for found in (tiles, parts)
        )
        apart = np.where(is_outside & (steps < prod(tiles)), self.planes[0].extent, 1)
        loop = Loop(_FORMULAS, apart, Loop(_TILES, steps, None, v["parallel"] > 0, tasks))
        for is_shared, n in zip(shared, tiles, strict=True):
            loop = Loop(_TILES, np.where(is_shared, 1, n), loop)
        # One body holds all formulas of the first axis where nothing is left to be inside of it.
        place = np.where(is_outside, np.where(apart > 1, OUTSIDE, WITHIN), v["place"])
        ops, flops, math, masked, loaded, live = each(place, self.code.__getitem__)
        width, stored = min(self.width, last.spatial[-1].extent), self.points * tiles[-1]
        moving = dict.fromkeys((*_FORMULAS, *_TILES, *_LANES), 1)
        plain = Statement((Operations(_LANES, ops - masked, flops, math),))
        under = Statement((Operations(_LANES, masked, 0),))
        entering = Statement(reads=(Place("", ("",), moving),))
        leaving = Statement(writes=Place(last.name, (last.name,), {}))
        return [
            Leaf(loop, plain, {}, "lanes", width, 1 / apart),
            Leaf(loop, under, {}, "lanes", width, self._filled / apart, tested=1),
            Leaf(loop, entering, {}, "lanes", width, loaded / apart, registers=live - 1),
            Leaf(loop, leaving, {}, "lanes", width, stored / prod(tiles) / apart),
        ]

    @cached_property
    def _tiles(self) -> tuple[list[int], list[float]]:
        """Iterations of the loops that choose no formula, and the same with a last one that is
        shorter as a part. Values between stages are computed for whole tiles."""
        *outer, last = self.group.last.spatial
        vectors = -(-last.extent // self.width)
        periods = [(axis.extent, self.periods.get(axis.name, 1)) for axis in outer]
        tiles = [-(-extent // period) for extent, period in periods] + [vectors]
        parts = [extent / period for extent, period in periods] + [vectors]
        return tiles, list(map(float, tiles)) if self.group.inside else parts

    @property
    def _filled(self) -> float:
        """The share of the places of whole tiles that have an element."""
        periods = ((axis.extent, self.periods[axis.name]) for axis in self.planes)
        return prod(extent / (-(-extent // period) * period) for extent, period in periods)

    def default(self) -> tuple[int, ...]:
        """Formulas of the first axis apart, outside all loops where they can be; every thread. All
        three transforms of four Winograd forms on Zen 5 reach 0.96 of the best places so, and 0.68
        with everything around the formulas."""
        return self.clipped({"place": 2})

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        v, w, last = self.chosen(setting), writer, self.group.last
        w.do(*last.axis_splits)
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
        extents = [w.loop(name).extent for name in outer]
        shared = outer[: leading(extents, TASKS_A_THREAD * self.target.threads)]
        w.reorder(*shared, *outside)
        return shared


def leading(extents: Sequence[int], tasks: int) -> int:
    """How many loops of these, outermost first, have so many iterations; all if none have."""
    found = (n for n in range(len(extents)) if prod(extents[:n]) >= tasks)
    return next(found, len(extents))


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
