"""The transform sketch: elementwise stages that select one of a few formulas by an index.

The axis of such an index (`select(k == 0, .., select(k == 1, .., ..))`, or `h % 4 == 0`) is short.
Unrolling it removes the selection: each copy contains only its own formula. Operations that are
constant along a vector axis are done for a whole vector:

    tiles (parallel) | vectors of the contiguous axis | formulas, unrolled | lanes

A chain of such stages is computed together, with the values between them in registers. Examples
are the small dense transforms of fast convolutions. A plane is the part of the result that one
formula computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Generic

import numpy as np

from ...algebra.affine import Affine, FloorDiv, Mod, Var, var
from ...algebra.comparisons import Eq0
from ...algebra.scalar import All, Scalar, Select, loads, walk
from ...arrays import IntArray, map_unique
from ...leaves import AccessPattern, Leaf, LeafLoop, Operations, Statement
from ...memory_use import MemoryUse, StridedRows
from ...nest.loop_ir import LoopKind
from ...plan import Level, Outline, Plan, access_of, axes_of
from ...primitives import ComputeAt, Parallel, Unroll, Vectorize
from ..analysis.stages import SHORT_AXIS, StageLoop, StageView
from ..groups import TASKS_PER_THREAD, FusionGroup, GroupSketch, Stages, absorb_producers
from ..knobs import N, knob, parallel_knob, settings
from ..statements import own_names, own_place
from ..vectors import fitting, vector_loop
from ..writer import TraceWriter
from .formulas import FormulaCounts, Formulas, Values, formula_counts

AROUND, WITHIN, OUTSIDE = 0, 1, 2
"""Positions at which all stages but the last are computed.

AROUND: outside the formulas of a vector. WITHIN: inside each formula of the first axis, which needs
half the registers. OUTSIDE: like WITHIN, but the first axis is outside all other loops, which run
once per formula of that axis. OUTSIDE reads the data several times but writes to fewer planes
concurrently. Planes at a power-of-two distance compete for the same cache sets.
"""

_TILES, _FORMULAS, _LANES = (frozenset({axis}) for axis in ("tiles", "formulas", "lanes"))


def choices(value: Scalar) -> dict[str, int]:
    """Return the loops whose index selects a formula. Each is mapped to the period of the
    selection, or to 0 if there is no period."""
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
    """Return whether the stage is elementwise and selects formulas by short axes."""
    found = choices(view.value)
    extents = {loop.name: loop.extent for loop in view.spatial}
    sizes = [period or extents.get(name, SHORT_AXIS + 1) for name, period in found.items()]
    return bool(sizes) and not view.is_reduction and all(n <= SHORT_AXIS for n in sizes)


def all_choices(stages: Sequence[StageView]) -> dict[str, int]:
    """Return the loops of the last stage whose index selects a formula, with their periods (see
    `choices`). A loop also selects if it indexes a read of an earlier stage that selects by this
    index."""
    found: dict[str, int] = {}
    dims: dict[str, set[int]] = {}
    for view in stages:
        found = choices(view.value)
        for load in loads(view.value):
            for d in dims.get(load.tensor, ()):
                found |= _chooser(load.index[d])
        dims[view.name] = {loop.dim for loop in view.spatial if loop.name in found}
    return found


def transform_group(stages: Stages, view: StageView) -> FusionGroup | None:
    """Return the group of `view` and the earlier transforms that only the group reads. Return None
    if `view` is not a transform."""

    def common(other: StageView, reader: StageView) -> int:
        return 0 if is_transform(other) and not other.axis_splits else -1

    return (
        absorb_producers(stages, FusionGroup(view), common, least=0) if is_transform(view) else None
    )


@settings
class TransformSettings(Generic[N]):
    """Knobs of transforms."""

    compute_at: N = knob(lambda sketch: sketch.places, usual=2)
    """Position of all stages but the last. The default is the last possible one of AROUND, WITHIN
    and OUTSIDE. For all three transforms of four Winograd forms on Zen 5, the default reaches 0.96
    of the speed of the best positions, and AROUND reaches 0.68."""
    parallel: N = parallel_knob(lambda sketch: sketch.tasks > 1)


@dataclass(frozen=True)
class TransformSketch(GroupSketch[TransformSettings[IntArray], TransformSettings[int]]):
    """The sketch of elementwise stages that select one of a few formulas by an index."""

    name = "transform"
    SETTINGS = TransformSettings

    @property
    def places(self) -> tuple[int, ...]:
        """The values of `compute_at`."""
        within = (WITHIN,) if self.group.producers else ()
        whole = all(period == 0 for period in self.choices.values())
        return (AROUND, *within, *((OUTSIDE,) if whole else ()))

    # The following properties traverse expressions, so they are cached instead of computed for
    # every array of settings.

    @cached_property
    def choices(self) -> dict[str, int]:
        return all_choices(self.group.stages)

    @cached_property
    def planes(self) -> list[StageLoop]:
        """Loops whose index selects formulas, from outer to inner."""
        return [loop for loop in self.group.last.spatial if loop.name in self.choices]

    @cached_property
    def periods(self) -> dict[str, int]:
        """Period of the selection along each of the `planes`, at most its extent."""
        extents = ((loop.name, loop.extent) for loop in self.planes)
        return {name: min(self.choices[name] or extent, extent) for name, extent in extents}

    @cached_property
    def unrolled_copies(self) -> int:
        """Copies of the last stage's statement after unrolling its formulas."""
        return prod(self.periods.values())

    @cached_property
    def tasks(self) -> int:
        """Approximate number of iterations of the parallel loop."""
        return max(
            prod(loop.extent for loop in self.group.last.spatial[:-1]) // self.unrolled_copies, 1
        )

    @cached_property
    def tiles(self) -> dict[str, int]:
        """Number of tiles along each axis that has several or does not select formulas. A tile
        contains every formula once."""
        axes, periods = self.group.last.spatial, self.periods
        found = {axis.name: -(-axis.extent // periods.get(axis.name, 1)) for axis in axes}
        return {name: n for name, n in found.items() if n > 1 or name not in periods}

    @cached_property
    def cut(self) -> dict[str, int]:
        """Tile length along the axes that select formulas and have several tiles."""
        return {name: self.periods[name] for name in self.choices if name in self.tiles}

    @cached_property
    def lane(self) -> str:
        """The axis that is vectorised across tiles, or "" if no axis is suitable."""
        last, tile = self.group.last, {name: var(name) * n for name, n in self.cut.items()}
        reads = [(r.shape, tuple(i.substitute(tile) for i in r.index)) for r in last.reads]
        steps = own_place(last, own_names(last)).steps
        own = {name: steps[name] * self.cut.get(name, 1) for name in self.tiles}
        return vector_loop(self.tiles, own.get, reads) or ""

    @cached_property
    def width(self) -> int:
        """Lanes per vector: all, or a power of two that a short axis fills."""
        return fitting(self.lanes, self.tiles.get(self.lane, 1))

    @cached_property
    def walked(self) -> dict[str, int]:
        """Trip counts of the loops over tiles, outermost first; the last loop iterates over
        vectors."""
        found = {name: n for name, n in self.tiles.items() if name != self.lane}
        if self.lane:
            found[self.lane] = -(-self.tiles[self.lane] // self.width)
        return found

    @cached_property
    def enough(self) -> int:
        """Number of tile loops that threads divide if a formula loop is outside the tile loops."""
        extents, tasks = list(self.walked.values()), TASKS_PER_THREAD * self.target.threads
        return sum(prod(extents[:n]) < tasks for n in range(len(extents)))

    @cached_property
    def code(self) -> dict[int, FormulaCounts]:
        """Counts of the unrolled formulas, by position. For OUTSIDE, the formulas of the first axis
        are counted separately and added."""
        group, last, first, inner = self.group, self.group.last, self.planes[0], self.planes[-1]
        masked = {view.name for view in group.stages if any(r.padded for r in view.reads)}
        # Guards of other axes are at the end of loops or are lane masks.
        if inner.name != self.lane and inner.extent % self.periods[inner.name]:
            masked.add(last.name)
        copies = self._copies({name: range(period) for name, period in self.periods.items()})
        stages = [Formulas(view) for view in group.stages]
        turns = [
            self._copies({**copies[last.name], first.name: [n]})
            for n in copies[last.name][first.name]
        ]
        apart = [formula_counts(stages, [turn], masked) for turn in turns]
        together = FormulaCounts(*map(sum, zip(*apart, strict=True)))
        return {
            AROUND: formula_counts(stages, [copies], masked),
            WITHIN: formula_counts(stages, turns, masked),
            OUTSIDE: together._replace(live=max(turn.live for turn in apart)),
        }

    def _copies(self, copies: Values) -> dict[str, Values]:
        """Return the index values of the unrolled axes of all stages. `copies` are those of the
        last stage.

        An earlier stage has one copy along an axis whose loop encloses it. Along an axis that
        selects formulas, it has the copies of its readers. Along an axis of which readers read
        fixed elements, it has one copy per element.
        """
        found = {self.group.last.name: copies}
        for view in reversed(self.group.producers):
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
        """The axes and accesses of the plan: tiles, and for each tensor the elements that a tile
        accesses."""
        last, inside = self.group.last, self.group.producer_names
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
        """Return a plan that iterates over the tiles."""
        levels = tuple(Level(n, 1) for n in range(len(self._outline.axes)))
        return Plan(self._outline, levels, len(np.atleast_2d(settings)))

    def leaves(self, settings: IntArray) -> Sequence[Leaf]:
        """Return the leaves inside the loops over tiles and vectors, with all formulas unrolled.
        Threads divide all these loops; with OUTSIDE, only as many as give enough tasks."""
        v, tiles, filled = self.values(settings), list(self.walked.values()), self._filled
        # Values between stages are computed for full tiles.
        part = {} if self.group.producers else filled
        parts = [n * part.get(name, 1) for name, n in self.walked.items()]
        is_outside, parallel = v.compute_at == OUTSIDE, v.parallel > 0
        shared = [parallel & (~is_outside | (n < self.enough)) for n in range(len(tiles))]
        steps, tasks = (
            prod(np.where(is_shared, n, 1) for is_shared, n in zip(shared, found, strict=True))
            for found in (tiles, parts)
        )
        apart = np.where(is_outside & (steps < prod(tiles)), self.planes[0].extent, 1)
        loop = LeafLoop(_FORMULAS, apart, LeafLoop(_TILES, steps, None, parallel, tasks))
        for is_shared, n in zip(shared, tiles, strict=True):
            loop = LeafLoop(_TILES, np.where(is_shared, 1, n), loop)
        # If no loop remains inside the first axis, one body contains all its formulas.
        place = np.where(is_outside, np.where(apart > 1, OUTSIDE, WITHIN), v.compute_at)
        ops, flops, math, masked, loaded, live = map_unique(self.code.__getitem__, place)
        name, width, share = self.group.last.name, self.width, prod(filled.values()) / apart
        moving = dict.fromkeys((*_FORMULAS, *_TILES, *_LANES), 1)
        plain = Statement((Operations(_LANES, ops - masked, flops, math),))
        under = Statement((Operations(_LANES, masked, 0),))
        entering = Statement(reads=(AccessPattern("", ("",), moving),))
        leaving = Statement(writes=AccessPattern(name, (name,), {}))
        return [
            Leaf(loop, plain, {}, "lanes", width, 1 / apart),
            Leaf(loop, under, {}, "lanes", width, share, guarded_fraction=1),
            Leaf(loop, entering, {}, "lanes", width, loaded / apart, extra_registers=live - 1),
            Leaf(loop, leaving, {}, "lanes", width, self.unrolled_copies * share),
        ]

    def memory(self, settings: IntArray) -> MemoryUse:
        """Return the memory use: each tile is stored to several planes at a regular stride."""
        last, planes = self.group.last, self.planes
        distance = prod(last.shape[planes[-1].dim + 1 :]) * last.dtype.bytes
        is_outside = self.values(settings).compute_at == OUTSIDE
        at_once = self.unrolled_copies / np.where(is_outside, float(planes[0].extent), 1.0)
        lines = last.points / self.lanes
        return MemoryUse(strided=(StridedRows(distance, 1, at_once, lines),))

    @property
    def _filled(self) -> dict[str, float]:
        """Fraction of the elements of full tiles that exist, by tiled axis. The vector axis is
        excluded, because its empty lanes are computed too."""
        axes = (x for x in self.planes if x.name in self.cut and x.name != self.lane)
        return {x.name: x.extent / (self.tiles[x.name] * self.cut[x.name]) for x in axes}

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        v, w, last = self.chosen(setting), writer, self.group.last
        w.do(*last.axis_splits)
        names = {loop.name: (loop.name, loop.name) for loop in last.spatial}
        names |= {name: w.split(name, period) for name, period in self.cut.items()}
        formulas = [names[loop.name][1] for loop in self.planes]
        outer, inner = [names[name][0] for name in self.walked], list[str]()
        if self.lane:
            outer[-1], *inner = w.split(outer[-1], self.width)
        outside, within = (
            (formulas[:1], formulas[1:]) if v.compute_at == OUTSIDE else ([], formulas)
        )
        w.reorder(*outside, *outer, *within, *inner)
        place = outer[-1] if outer else formulas[0]
        if v.compute_at == WITHIN and len(formulas) > 1:
            place = formulas[0]
        for view in reversed(self.group.producers):
            w.do(ComputeAt(view.name, place, register=True))
        for view in self.group.producers:
            _unroll(w, view.name, place, self.lanes)
        if not inner:
            _unroll(w, last.name, place, self.lanes)
        w.do(*(Vectorize(name) for name in inner if w.loop(name).extent > 1))
        if v.parallel and outer:
            tasks = outer[: self.enough] if outside else outer
            if outside:
                w.reorder(*tasks, *outside)
            w.do(Parallel(w.fuse_all(tasks)))
        w.do(*(Unroll(name) for name in formulas if w.loop(name).kind is LoopKind.SERIAL))


def _unroll(w: TraceWriter, name: str, place: str, lanes: int) -> None:
    """Unroll the loops of a stage, and vectorise the contiguous one if it is short."""
    leaf, _ = w.writer_of(name)
    own = [loop.var for loop in w.own_loops(name, inside=place)]
    lane = w.best_vector_loop(leaf, [n for n in own if w.loop(n).extent <= lanes])
    others = [n for n in own if n != lane]
    if lane:
        w.reorder(*others, lane)
    w.do(*(Unroll(n) for n in others))
    if lane:
        w.do(Vectorize(lane))
