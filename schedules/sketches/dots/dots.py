"""The sketch of dot products: lanes along the reduction, several rows and columns at a time.

A large operand that is contiguous along the reduction, and of which each element is used a few
times only (weights stored outputs by inputs and a few rows, images of many channels of which few
are made), is read in place and once, as many rows of it at a time as there are columns in a tile.
Each result of a tile has a vector of partial sums in a register, added up at the end. Packing such
an operand would take as long as the product, and lanes along a few results would be empty.

Where the rows of the other operand are too much for the first cache, a block of tiles may go
through a part of the reduction before the next: its partial sums wait in the second cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm, prod

import numpy as np

from ...algebra.affine import Affine, Cond, Mod
from ...algebra.scalar import All, Select, walk
from ...arrays import BoolArray, IntArray
from ...plan import Access, Level, Outline, Plan, access_of, axes_of
from ...space import Knob
from ...target import Target
from ...workload.workload import Workload
from ..analysis import Loop, Read, StageView, once
from ..hardware import BUSY_CHAINS, PAGE_BYTES
from ..knobs import Knobbed
from ..writer import TraceWriter
from .dots_trace import write_dots

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

BLOCKS = (2, 4, 8)
"""Parts of a reduction that are gone through one after the other."""

LEAST_BLOCK_VECTORS = 16
"""Vectors of a part that pay for loading and storing the sums of a tile."""

MOST_BLOCK_COLUMNS = 128
"""Columns whose partial sums wait in the second cache for the next part."""

MOST_OF_FIRST_CACHE = 0.75
"""Share of it that what tiles share may take, beside what passes."""


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
            Knob("fetch", (0, 1) if self.is_far else (0,)),
            Knob("blocks", (1, *self._blocks)),
            Knob("pack", (0, 1) if self._blocks and self.shared else (0,)),
        )

    @cached_property
    def shared(self) -> tuple[Read, ...]:
        """What all tiles read again, row by row, from where it is."""
        return tuple(read for read in once(self.view.reads) if self._is_shared(read))

    def _is_shared(self, read: Read) -> bool:
        roles = self.roles
        plain = read is not roles.passing and read not in roles.turned and not read.conditional
        dim, few = (read.own_dim(loop.name) for loop in (roles.along, roles.few))
        return plain and dim == len(read.shape) - 1 and few is not None

    @property
    def _shared_bytes(self) -> int:
        """Bytes that a tile of all rows walks through, beside what passes."""
        roles = self.roles
        taps = prod(loop.extent for loop in roles.taps)
        turned = tuple(read for read in roles.turned if read.uses(roles.few.name))
        an_element = sum(read.dtype.bytes for read in (*self.shared, *turned))
        return an_element * roles.few.extent * taps * roles.along.extent

    @cached_property
    def _blocks(self) -> tuple[int, ...]:
        """Into how many parts a reduction may be cut, of which one after the other is gone through
        for a block of tiles: where the first cache holds what tiles share of a part beside what
        passes, and not of the whole."""
        vectors = self.roles.along.extent // self.lanes
        whole = self.roles.along.extent % self.lanes == 0 and self.roles.period == 1
        first = self.target.caches[0].bytes
        if not whole or 2 * self._shared_bytes <= first:
            return ()
        return tuple(
            n
            for n in BLOCKS
            if vectors % n == 0
            and vectors // n >= LEAST_BLOCK_VECTORS
            and self._shared_bytes / n <= MOST_OF_FIRST_CACHE * first
        )

    def tiles_a_block(self, columns: int) -> int:
        """Tiles of `columns` that a block of the reduction is used for before the next."""
        tiles = self.roles.many.extent // columns
        most = max(MOST_BLOCK_COLUMNS // columns, 1)
        return next(n for n in range(min(most, tiles), 0, -1) if tiles % n == 0)

    @property
    def is_far(self) -> bool:
        """Whether the passing operand comes from behind a core's own caches, a page or more for
        each of its rows: prefetchers start anew at every page."""
        passing, along = self.roles.passing, self.roles.along
        size = prod(passing.shape) * passing.dtype.bytes
        long = along.extent * passing.dtype.bytes >= PAGE_BYTES
        return long and size > self.target.own_cache_bytes // 2

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether sums of a tile and one operand's vectors are kept in registers; blocks
        are of several tiles, and copies for blocks: a whole reduction reads them no faster."""
        v = self.values(settings)
        rows, columns = v["rows"], v["columns"]
        live = rows * columns + np.minimum(rows * self.roles.period, columns) + 1
        held = live <= max(self.target.vector_registers - 1, 3)
        whole = (v["blocks"] == 1) & (v["pack"] == 0)
        ok: BoolArray = held & (whole | (self.tiles_in_block(v) > 1))
        return ok

    def tiles_in_block(self, v: dict[str, IntArray]) -> IntArray:
        """(P,) tiles in a block."""
        widths = next(knob.values for knob in self.knobs if knob.name == "columns")
        sizes = np.asarray([self.tiles_a_block(width) for width in widths])
        return np.where(v["blocks"] > 1, sizes[np.searchsorted(widths, v["columns"])], 1)

    @cached_property
    def _outline(self) -> Outline:
        roles = self.roles
        loops = (roles.many, roles.few, roles.along, *roles.batch, *roles.taps)
        names = [loop.name for loop in loops]
        found = [
            access_of(read.tensor, read.dtype.bytes, read.index, names)
            for read in once(self.view.reads)
        ]
        out = tuple(tuple(int(loop is axis) for axis in loops) for loop in self.view.spatial)
        # Lanes are walked whole, whatever elements there are in the last.
        whole = -(-roles.along.extent // self.lanes) * self.lanes
        axes = axes_of((x.name, whole if x is roles.along else x.extent) for x in loops)
        output = Access(self.view.name, self.view.dtype.bytes, out, is_output=True)
        return Outline(axes, (*found, output))

    def plan(self, settings: IntArray) -> Plan:
        """Blocks of tiles, parts of the reduction, tiles, and in each the reduction's vectors."""
        v = self.values(settings)
        many, few, along = range(3)
        first_tap = 3 + len(self.roles.batch)
        taps = range(first_tap, first_tap + len(self.roles.taps))
        vectors = -(-self.roles.along.extent // (self.lanes * v["blocks"]))
        shared = v["parallel"] > 0
        levels = (
            *(Level(n, 1, shared) for n in range(3, first_tap)),
            Level(many, v["columns"] * self.tiles_in_block(v), shared),
            Level(along, vectors * self.lanes),
            Level(many, v["columns"]),
            Level(few, v["rows"]),
            *(Level(n, 1) for n in taps),
            Level(along, self.lanes),
            Level(few, 1),
            Level(many, 1),
            Level(along, 1),
        )
        return Plan(self._outline, levels, len(shared), self._dense(v))

    def _dense(self, v: dict[str, IntArray]) -> IntArray:
        """(P,) which accesses are read through a copy, see `Plan.dense`."""
        buffers = [access.buffer for access in self._outline.accesses]
        turned = sum(1 << buffers.index(read.tensor) for read in self.roles.turned)
        shared = sum(1 << buffers.index(read.tensor) for read in self.shared)
        return turned + v["pack"] * shared

    def default(self) -> tuple[int, ...]:
        """The tile that reads least for what it computes, on all threads."""
        grid = np.indices([len(knob.values) for knob in self.knobs]).reshape(len(self.knobs), -1).T
        grid = grid[self.feasible(grid)]
        v = self.values(grid)
        chains = v["rows"] * v["columns"]
        worth = chains / (v["rows"] + v["columns"]) * np.minimum(chains / BUSY_CHAINS, 1.0)
        near = self._shared_bytes / v["blocks"] <= MOST_OF_FIRST_CACHE * self.target.caches[0].bytes
        worth = worth + v["parallel"] + v["fetch"] + near
        worth = worth - v["blocks"] / 100  # the longest that stay
        return tuple(int(i) for i in grid[np.argmax(worth)])

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other clusters' steps already."""
        write_dots(self, writer, self.chosen(setting))
