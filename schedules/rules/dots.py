"""The sketch of dot products: lanes along the reduction, several rows and columns at a time.

A large operand that is contiguous along the reduction, and of which each element is used a few
times only (weights stored outputs by inputs and a few rows, images of many channels of which few
are made), is read in place and once, as many rows of it at a time as there are columns in a tile.
Each result of a tile has a vector of partial sums in a register, added up at the end. Packing such
an operand would take as long as the product, and lanes along a few results would be empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm, prod

import numpy as np

from ..affine import Affine, Cond, Mod
from ..primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    FetchAhead,
    Parallel,
    Partition,
    RFactor,
    TransformLayout,
    Unroll,
    Vectorize,
)
from ..primitives.caching import ROOT
from ..scalar import All, Select, walk
from ..space import Access, BoolArray, FloatArray, IntArray, Knob, with_zeros
from ..target import Target
from ..workload import Workload
from .analysis import Loop, Read, StageView, once, stride
from .hardware import BUSY_CHAINS, COST_OF_A_LATE_LINE, PAGE_BYTES
from .knobs import Knobbed, as_floats
from .writer import TraceWriter

MOST_USES = 16
"""An element that is used more often than this pays for packing its operand: 32x4096 by 4096x1024
takes as long either way."""

LEAST_VECTORS = 8
"""Vectors along the reduction that pay for adding up lanes at the end."""

FULL_SHARE = 0.8
"""Share of the lanes along the reduction that must be full."""

LEAST_PASSING_BYTES = 1 << 15
"""A smaller operand is in the first cache however it is read."""

TIMES_AS_LARGE = 16
"""The operand that passes by, beside one that is small enough to be copied and turned first."""

MOST_PERIOD = 4
"""Phases along an axis whose operands are kept in registers side by side, at most."""

TILE_ROWS, TILE_COLUMNS = tuple(range(1, 17)), (1, 2, 3, 4, 5, 6, 7, 8)
"""Sizes of tiles that are tried, where they divide their axes."""


@dataclass(frozen=True, slots=True)
class DotRoles:
    """Which loop plays which part: `passing` is read along `along` for each of `many`, and used
    again for each of `few`; `turned` operands are contiguous along another loop and are copied.
    Every `period` neighbours along `many` use other elements of these, in turn."""

    passing: Read
    along: Loop
    many: Loop
    few: Loop
    period: int
    batch: tuple[Loop, ...]
    taps: tuple[Loop, ...]
    turned: tuple[Read, ...]


def dot_roles(view: StageView, lanes: int) -> DotRoles | None:
    """The parts of the sketch for a stage, None if it does not fit."""
    if not view.is_reduction or view.presplit or view.guards or not view.reduce:
        return None
    reads = once(view.reads)
    if len(reads) != len(view.reads):
        return None
    passing = max(reads, key=lambda read: prod(read.shape) * read.dtype.bytes)
    along = next((x for x in view.reduce if passing.element_stride(x.name) == 1), None)
    if along is None or not _is_deep(view, along, lanes):
        return None
    if any(along.name in cond.index.vars() for cond in _conditions(view)):
        return None  # what differs from lane to lane would be masked in every step
    few = [x for x in view.spatial if x.extent > 1 and not passing.uses(x.name)]
    many = [x for x in view.spatial if x.extent > 1 and _period(passing, x, reads)]
    if len(few) != 1 or few[0].extent > MOST_USES or not many:
        return None
    if prod(passing.shape) * passing.dtype.bytes < LEAST_PASSING_BYTES:
        return None
    turned = tuple(r for r in reads if r.element_stride(along.name) not in (0, 1))
    if not all(_can_turn(read, along, passing) for read in turned):
        return None
    return DotRoles(
        passing=passing,
        along=along,
        many=many[-1],
        few=few[0],
        period=_period(passing, many[-1], reads),
        batch=tuple(x for x in view.spatial if x not in (many[-1], few[0])),
        taps=tuple(x for x in view.reduce if x is not along),
        turned=turned,
    )


def _conditions(view: StageView) -> Iterator[Cond]:
    """The conditions under which something is read, padding's among them."""
    for node in walk(view.value):
        if isinstance(node, Select) and isinstance(node.cond, All):
            yield from node.cond.conds


def _is_deep(view: StageView, along: Loop, lanes: int) -> bool:
    """Whether a result is made of vectors enough along `along`, most of them full."""
    vectors = -(-along.extent // lanes)
    depth = vectors * prod(loop.extent for loop in view.reduce if loop is not along)
    return depth >= LEAST_VECTORS and along.extent >= FULL_SHARE * vectors * lanes


def _period(passing: Read, loop: Loop, reads: tuple[Read, ...]) -> int:
    """After how many steps of `loop`, which moves the passing operand, all others are where they
    were: 1 where they are used again for it. 0 where that does not happen soon."""
    if not passing.uses(loop.name):
        return 0
    periods = {1}
    others = (index for read in reads if read is not passing for index in read.index)
    for atom, _ in (term for index in others for term in index.terms):
        if isinstance(atom, Mod) and atom.numerator.is_linear_in(loop.name):
            periods.add(atom.divisor if loop.name in atom.numerator.vars() else 1)
        elif loop.name in (Affine(((atom, 1),), 0)).vars():
            return 0
    period = lcm(*periods)
    return period if period <= MOST_PERIOD and loop.extent % period == 0 else 0


def _can_turn(read: Read, along: Loop, passing: Read) -> bool:
    """Whether a copy of `read` that is contiguous along the reduction costs little beside one walk
    along the operand that passes by."""
    size = prod(read.shape) * read.dtype.bytes
    small = TIMES_AS_LARGE * size <= prod(passing.shape) * passing.dtype.bytes
    return small and read.own_dim(along.name) is not None


@dataclass(frozen=True)
class DotSketch(Knobbed):
    """See the module."""

    workload: Workload
    view: StageView
    roles: DotRoles
    target: Target

    @property
    def name(self) -> str:
        return "dots"

    @property
    def lanes(self) -> int:
        return self.target.lanes(self.view.dtype)

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """Tiles are whole: nothing in them is tested."""
        few, many, period = self.roles.few.extent, self.roles.many.extent, self.roles.period
        return (
            Knob("rows", tuple(n for n in TILE_ROWS if few % n == 0)),
            Knob("columns", tuple(n for n in TILE_COLUMNS if many % n == 0 and n % period == 0)),
            Knob("parallel", (0, 1) if self.target.threads > 1 else (0,)),
            Knob("fetch", (0, 1) if self._is_far else (0,)),
        )

    @property
    def _is_far(self) -> bool:
        """Whether the passing operand comes from behind a core's own caches, a page or more for
        each of its rows: prefetchers start anew at every page."""
        passing, along = self.roles.passing, self.roles.along
        size = prod(passing.shape) * passing.dtype.bytes
        long = along.extent * passing.dtype.bytes >= PAGE_BYTES
        return long and size > self.target.own_cache_bytes // 2

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether sums of a tile and one operand's vectors are kept in registers."""
        v = self.values(settings)
        rows, columns = v["rows"], v["columns"]
        live = rows * columns + np.minimum(rows * self.roles.period, columns) + 1
        ok: BoolArray = live <= max(self.target.vector_registers - 1, 3)
        return ok

    @property
    def loop_axes(self) -> tuple[int, ...]:
        # axes: 0 many, 1 few, 2 along, then one for each loop of batch and of taps
        first_tap = 3 + len(self.roles.batch)
        taps = range(first_tap, first_tap + len(self.roles.taps))
        return (*range(3, first_tap), 0, 1, *taps, 2, 1, 0, 2)

    def extents(self, settings: IntArray) -> IntArray:
        """(P, L) trip counts."""
        v = self.values(settings)
        rows, columns = v["rows"], v["columns"]
        roles, ones = self.roles, np.ones_like(rows)
        return np.stack(
            [
                *(ones * loop.extent for loop in roles.batch),
                roles.many.extent // columns,
                roles.few.extent // rows,
                *(ones * loop.extent for loop in roles.taps),
                ones * -(-roles.along.extent // self.lanes),
                rows,
                columns,
                ones * self.lanes,
            ],
            axis=1,
        )

    @cached_property
    def accesses(self) -> tuple[Access, ...]:
        roles = self.roles
        axes = (roles.many, roles.few, roles.along, *roles.batch, *roles.taps)
        found = []
        for read in once(self.view.reads):
            dims = tuple(tuple(stride(index, loop) for loop in axes) for index in read.index)
            found.append(Access(read.tensor, read.dtype.bytes, dims))
        out = tuple(tuple(int(loop is axis) for axis in axes) for loop in self.view.spatial)
        return (*found, Access(self.view.name, self.view.dtype.bytes, out, is_output=True))

    def columns(self, settings: IntArray) -> dict[str, FloatArray]:
        """See COLUMNS."""
        v = as_floats(self.values(settings))
        rows, columns, parallel, fetch = (v[n] for n in ("rows", "columns", "parallel", "fetch"))
        roles, zeros = self.roles, np.zeros(len(rows))
        batch = prod(loop.extent for loop in roles.batch)
        taps = float(prod(loop.extent for loop in roles.taps))
        trips = float(-(-roles.along.extent // self.lanes))
        many = batch * roles.many.extent / columns
        tiles = many * roles.few.extent / rows
        chains, outputs = rows * columns, float(self.view.outputs)
        ops = max(self.view.operations - 1, 1)
        size = prod(roles.passing.shape) * roles.passing.dtype.bytes
        lines = size / self.target.caches[0].line_bytes if self._is_far else 0.0
        hints = columns * fetch * rows / roles.few.extent
        work = tiles * taps * trips * chains * ops
        turned = sum(prod(read.shape) * read.dtype.bytes for read in roles.turned)
        index = [access.buffer for access in self.accesses]
        dense = sum(1 << index.index(read.tensor) for read in roles.turned)
        found: dict[str, FloatArray] = {
            "flops": 2.0 * work * self.lanes,
            "vector_ops": work + outputs * OPS_A_SUM_OF_LANES,
            "vector_loads": tiles * taps * trips * (rows * roles.period + columns + hints),
            "vector_stores": zeros + outputs,
            "scalar_accesses": zeros + outputs,
            "conflict_misses": LATE_SHARE * COST_OF_A_LATE_LINE * lines * (fetch == 0),
            "accumulators": chains,
            "live_registers": chains + np.minimum(rows * roles.period, columns) + 1.0,
            "inner_trips": zeros + trips,
            "inner_entries": tiles * taps,
            "code_ops": chains * ops + rows + columns,
            "packed_bytes": zeros + turned,
            "strided_packed_bytes": zeros + turned,
            "panel_bytes": zeros + turned,
            "packed_accesses": zeros + dense,
            "tasks": np.where(parallel > 0, many, 1.0),
            "regions": parallel,
        }
        return with_zeros(found)

    def default(self) -> tuple[int, ...]:
        """The tile that reads least for what it computes, on all threads."""
        grid = np.indices([len(knob.values) for knob in self.knobs]).reshape(len(self.knobs), -1).T
        grid = grid[self.feasible(grid)]
        v = self.values(grid)
        chains = v["rows"] * v["columns"]
        worth = chains / (v["rows"] + v["columns"]) * np.minimum(chains / BUSY_CHAINS, 1.0)
        worth = worth + v["parallel"] + v["fetch"]
        return tuple(int(i) for i in grid[np.argmax(worth)])

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other clusters' steps already."""
        v = self.chosen(setting)
        rows, columns = v["rows"], v["columns"]
        w, roles, stage = writer, self.roles, self.view.name
        w.do(*self.view.presolve)
        for n, read in enumerate(roles.turned):
            self._turn(w, read, f"{stage}.turned{n}")
        steps, within = w.split(roles.along.name, self.lanes)
        wide = f"{stage}.wide"
        w.do(RFactor(within, wide))
        lanes = f"{within}.rf"
        many, column = w.split(f"{roles.many.name}.rf", columns)
        few, row = w.split(f"{roles.few.name}.rf", rows)
        tasks, *inside = [*(f"{loop.name}.rf" for loop in roles.batch), many]
        w.reorder(tasks, *inside, few, column, row)
        if v["parallel"]:
            for name in inside:
                tasks = w.fuse(tasks, name)
        w.do(ComputeAt(wide, few, register=True))
        own = w.own_loops(wide, inside=few)
        *tile, last = [loop.var for loop in own if not loop.reduce]
        w.reorder(*(loop.var for loop in own if loop.reduce), *tile, last)
        w.do(Vectorize(last), *(Unroll(name) for name in tile))
        w.do(CacheWrite(wide, few, f"{wide}.acc"))
        w.do(Unroll(row), Unroll(column))
        w.do(CacheWrite(stage, few, f"{stage}.total"), Vectorize(lanes))
        if v["fetch"]:
            deal = few if w.loop(few).extent > 1 else ""
            line = self.target.caches[0].line_bytes // roles.passing.dtype.bytes
            w.do(FetchAhead(roles.passing.tensor, tasks, 1, steps, deal, line))
        whole = roles.along.extent // self.lanes
        if roles.along.extent % self.lanes:
            w.do(Partition(steps, whole))
        if v["parallel"]:
            w.do(Parallel(tasks))

    def _turn(self, w: TraceWriter, read: Read, name: str) -> None:
        """A copy of `read`, made once, that is contiguous along the reduction."""
        dim = read.own_dim(self.roles.along.name)
        assert dim is not None
        others = tuple((d, 0) for d in range(len(read.shape)) if d != dim)
        w.do(CacheRead(read.tensor, ROOT, name), TransformLayout(name, (), (*others, (dim, 0))))


LATE_SHARE = 0.15
"""Share of the lines of an operand from behind the core's own caches that are late without hints.
4x4096 by 1024x4096 on Zen 5, two threads: 441 us, 211 with hints."""

OPS_A_SUM_OF_LANES = 8.0
"""Steps that add up the lanes of one vector."""
