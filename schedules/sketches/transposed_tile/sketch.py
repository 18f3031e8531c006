"""The transposed-tile sketch: a tiled reduction and the stage that transposes its result.

A convolution in a layout with the channels first may be unsuitable for vectors along its last axis,
for example if a stride divides this axis into phases. It is then computed with the channels last,
and transposed (`PermuteAxes`). This sketch does both in one pass. For each iteration of the loops
that the two stages have in common, for example images and rows, a private buffer receives one row
of all channels, which stays in the caches until it is transposed:

    threads: common axes
      batch axes, blocks, tiles of the row  ->  private buffer [along, across]
      register blocks of the buffer         ->  result [.., across, .., along]

The reduction is scheduled like in the tile sketch, but its column operands are packed once per
call. The other stage is scheduled like in the transpose sketch and may contain an epilogue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...algebra.affine import Affine, affine, var
from ...arrays import BoolArray, IntArray
from ...leaves import Leaf
from ...memory_use import MemoryUse
from ...plan import Access, Outline, Plan
from ...space import Knob
from ...target import Target
from ...workload.workload import Workload
from ..analysis.stages import StageLoop, StageView, view_stage
from ..analysis.tile_roles import roles_along
from ..groups import Stages
from ..statements import other_accesses, whole_index
from ..transpose.copies import BlockCopy, TransposeSketch, find_transposition
from ..transpose.pieces import BlockNest, BlockPiece
from ..writer import BATCHES, TraceWriter
from .row_tiles import RowTiles

PREFIX = "transpose."
"""First part of the names of the knobs of the transposition."""

SHARED = "parallel"
"""The knob that both stages have in common."""


@dataclass(frozen=True)
class TransposedTileSketch:
    """The sketch of the reduction `tiles` and of the stage `copy` that transposes it."""

    workload: Workload
    tiles: RowTiles
    copy: TransposeSketch
    target: Target

    name = "tile_transpose"

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """The knobs of the reduction, and those of the transposition except `parallel`."""
        own = (knob for knob in self.copy.knobs if knob.name != SHARED)
        return (*self.tiles.knobs, *(Knob(f"{PREFIX}{knob.name}", knob.values) for knob in own))

    def _divided(self, settings: IntArray) -> tuple[IntArray, IntArray]:
        """Return the settings of the reduction and those of the transposition."""
        settings = np.atleast_2d(settings)
        tiles, copy = np.split(settings, [len(self.tiles.knobs)], axis=1)
        shared = [knob.name for knob in self.tiles.knobs].index(SHARED)
        place = [knob.name for knob in self.copy.knobs].index(SHARED)
        return tiles, np.insert(copy, place, tiles[:, shared], axis=1)

    def feasible(self, settings: IntArray) -> BoolArray:
        tiles, copy = self._divided(settings)
        found: BoolArray = self.tiles.feasible(tiles) & self.copy.feasible(copy)
        return found

    def default(self) -> tuple[int, ...]:
        names = [knob.name for knob in self.copy.knobs]
        copy = zip(names, self.copy.default(), strict=True)
        return (*self.tiles.default(), *(place for name, place in copy if name != SHARED))

    @cached_property
    def outline(self) -> Outline:
        """The axes of the reduction and the accesses of both stages. The result of the reduction is
        a private buffer."""
        *reads, row = self.tiles.outline.accesses
        axes, view = self.tiles.outline.axes, self.tiles.view
        names = [axis.name for axis in axes]
        # The first level is that of parts of the reduction.
        private = replace(row, is_output=False, private_levels=1 + self.tiles.outer)
        own = [view.spatial[n].name for n in self._order]
        strides = tuple(tuple(int(name == loop) for name in names) for loop in own)
        stored = self.copy.view
        more = other_accesses(view, stored, self._places, names)
        output = Access(stored.name, stored.dtype.bytes, strides, is_output=True)
        return Outline(axes, (*reads, private, *more, output))

    @property
    def _order(self) -> list[int]:
        """The numbers of the spatial loops of the reduction, in the order of the dimensions of the
        result."""
        dims = {dim: n for n, dim in enumerate(row_dims(self.copy))}
        spatial = self.tiles.view.spatial
        return sorted(range(len(spatial)), key=lambda n: dims.get(spatial[n].dim, -1))

    @property
    def _places(self) -> dict[str, Affine]:
        """The axes of the result in terms of the loops of the reduction."""
        pairs = zip(self.copy.view.spatial, row_dims(self.copy), strict=True)
        return {loop.name: whole_index(self.tiles.view, dim) for loop, dim in pairs}

    def plan(self, settings: IntArray) -> Plan:
        """Return the loops of the reduction. Those of the transposition inside the common loops are
        in the leaves only: it accesses whole rows."""
        tiles, copy = self._divided(settings)
        streamed = self.copy.values(copy).nontemporal_stores > 0
        found, own = self.tiles.plan(tiles), len(self.tiles.outline.accesses)
        whole = (1 << len(self.outline.accesses)) - (1 << own - 1)
        dense = found.dense_mask | whole
        return replace(found, outline=self.outline, dense_mask=dense, nontemporal=streamed)

    def leaves(self, settings: IntArray) -> Iterator[Leaf]:
        tiles, copy = self._divided(settings)
        yield from self.tiles.packing(tiles)
        yield from self.tiles.leaves(tiles)
        plan = self.tiles.plan(tiles)
        yield from self.copy.leaves_of(_RowNest(self.copy, self.copy.plan(copy), plan), copy)

    def memory(self, settings: IntArray) -> MemoryUse:
        """Return the memory use of both stages. The transposition reads its operand from the
        caches."""
        tiles, copy = self._divided(settings)
        found, more = self.tiles.memory(tiles), self.copy.memory(copy)
        _, written = more.distant
        return replace(
            found, copies=(*found.copies, *more.copies), distant=(*found.distant, written)
        )

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Emit the common loops, the tiles inside them, and then the transposition."""
        tiles, copy = (tuple(int(i) for i in own[0]) for own in self._divided(np.asarray(setting)))
        blocks = BlockCopy.of(self.copy, writer, copy)
        self.tiles.write_inside(writer, tiles, blocks.around)
        blocks.write_pieces()
        blocks.finish()


class _RowNest(BlockNest):
    """The nests of a transposition inside the first loops of the plan `around`."""

    def __init__(self, sketch: TransposeSketch, plan: Plan, around: Plan) -> None:
        super().__init__(sketch, plan)
        self.around = around

    @cached_property
    def whole(self) -> BlockPiece:
        batches = [n for n, level in enumerate(self.around.levels) if level.role == BATCHES]
        inner = batches[len(self.sketch.others) - 1]
        return replace(super().whole, loop=self.around.leaf_loops[inner])


def transposed_tiles(stages: Stages, view: StageView) -> TransposedTileSketch | None:
    """Return the sketch of `view` and the tiled reduction that it transposes. Return None if there
    is no such reduction.

    The reduction must have (1) no other reader, (2) the axes of `view`, those of the blocks last,
    (3) rows that fit half of a core's private caches, (4) enough rows for all threads, (5) columns
    along its last axis that are reused along the axis before, and (6) phases. Without phases, tiles
    can also be computed in the layout of the result.
    """
    found = find_transposition(view)
    if found is None or len({read.tensor for read in found.reads}) > 1:
        return None
    read, workload, target = found.reads[0], stages.workload, stages.target
    copy = TransposeSketch(workload, view, found, target)
    name, outer = read.tensor, len(copy.others)
    loops = [view.spatial[n] for n in copy.others]
    index = tuple(_position(loop) for loop in (*loops, found.along, found.across))
    is_same = all(r.index == index for r in view.reads if r.tensor == name)
    if copy.is_narrow or not copy.has_many_others or not is_same or name not in stages.left:
        return None
    reduction = stages.views[name]
    if not reduction.phase_steps or not stages.only_needed_by(name, {view.name}):
        return None
    row = found.along.extent * found.across.extent * read.dtype.bytes
    if reduction.reuse <= 1 or 2 * row > target.own_cache_bytes:
        return None
    tiles = _row_tiles(stages, name, outer)
    return TransposedTileSketch(workload, tiles, copy, target) if tiles else None


def _row_tiles(stages: Stages, name: str, outer: int) -> RowTiles | None:
    """Return the tiles of reduction `name` inside its first `outer` axes, or None."""
    workload, target = stages.workload, stages.target
    inlined = tuple(stage.name for stage in workload.stages if stage.name not in stages.views)
    view = view_stage(workload, name, inlined, unsplit=outer)
    if not view.reduce or any(loop.dim < 0 for loop in view.spatial[outer:]):
        return None
    roles = roles_along(view, view.spatial[-1], outer=outer)
    if roles is None or not roles.rows:
        return None
    tiles = RowTiles(workload, view, roles, target, outer=outer)
    return tiles if tiles.panels else None


def row_dims(copy: TransposeSketch) -> list[int]:
    """Return the dimension of the transposed tensor for each axis of the result."""
    order = [*copy.others, *reversed(copy.pair)]
    return [order.index(n) for n in range(len(order))]


def _position(loop: StageLoop) -> Affine:
    return var(loop.name) if loop.extent > 1 else affine(0)
