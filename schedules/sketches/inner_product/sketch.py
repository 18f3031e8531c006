"""The inner-product sketch: lanes along the reduction, several rows and columns at a time.

A large operand that is contiguous along the reduction, and of which each element is used a few
times only (weights stored outputs by inputs and a few rows, images of many channels of which few
are made), is read in place and once, as many rows of it at a time as there are columns in a tile.
Each result of a tile has a vector of partial sums in a register, added up at the end. Packing such
an operand would take as long as the product, and lanes along a few results would be empty.

Where the rows of the other operand are too much for the first cache, a block of tiles may go
through a part of the reduction before the next: its partial sums wait in the second cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import BoolArray, IntArray
from ...plan import Level, Outline, Plan
from ...space import Knob
from ..analysis import once
from ..hardware import BUSY_CHAINS
from ..knobs import Knobbed
from ..outlines import stage_outline
from ..writer import TraceWriter
from .stage import MOST_OF_FIRST_CACHE, InnerProductStage
from .trace import write_inner_product

TILE_ROWS, TILE_COLUMNS = tuple(range(1, 17)), (1, 2, 3, 4, 5, 6, 7, 8)
"""Sizes of tiles that are tried, where they divide their axes."""


@dataclass(frozen=True)
class InnerProductSketch(InnerProductStage, Knobbed):
    """See the module."""

    @property
    def name(self) -> str:
        return "dots"

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """Tiles are whole: nothing in them is tested."""
        few, many, period = self.roles.few.extent, self.roles.many.extent, self.roles.period
        return (
            Knob("rows", tuple(n for n in TILE_ROWS if few % n == 0)),
            Knob("columns", tuple(n for n in TILE_COLUMNS if many % n == 0 and n % period == 0)),
            Knob("parallel", (0, 1) if self.target.threads > 1 else (0,)),
            Knob("prefetch", (0, 1) if self.is_far else (0,)),
            Knob("blocks", (1, *self.blocks)),
            Knob("pack", (0, 1) if self.blocks and self.shared else (0,)),
        )

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
        # Lanes are walked whole, whatever elements there are in the last.
        whole = -(-roles.along.extent // self.lanes) * self.lanes
        return stage_outline(self.view, loops, once(self.view.reads), {roles.along.name: whole})

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
        near = self.shared_bytes / v["blocks"] <= MOST_OF_FIRST_CACHE * self.target.caches[0].bytes
        worth = worth + v["parallel"] + v["prefetch"] + near
        worth = worth - v["blocks"] / 100  # the longest that stay
        return tuple(int(i) for i in grid[np.argmax(worth)])

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other clusters' steps already."""
        write_inner_product(self, writer, self.chosen(setting))
