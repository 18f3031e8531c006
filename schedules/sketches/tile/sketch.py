"""The tile sketch: reductions with a spatial vector axis, computed one register tile at a time.

It matches a stage with a spatial axis that some reads do not depend on, so that a register tile of
outputs reuses its loads: matrix products in any layout, convolutions of any rank, their grouped and
batched variants, and other expressions. The loops, from outer to inner:

    batch axes | blocks of columns and rows (either order) | blocks of the reduction
    [pack the column operands] [copy the row operands]
    tiles of columns and rows (either order) | reduction | unrolled tile | vector

Columns are the vector axis. Rows are up to two spatial axes that the column operands do not use.

`stage.py` has the properties of the stage, `analysis/tile_roles.py` loop roles, `operands.py` the
conditions for packing and copying, `settings.py` knobs, `limits.py` feasibility, `loops.py` the
loops of a setting, and `trace.py` trace emission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import IntArray
from ...leaves import Leaf
from ...memory_use import MemoryUse
from ...plan import Outline, Plan
from ..writer import TraceWriter
from .default import TileChoices
from .leaves import TileNest
from .loops import tile_outline, tile_plan
from .memory import tile_memory
from .trace import TileTrace


@dataclass(frozen=True)
class TileSketch(TileChoices):
    """The sketch of a reduction that is computed one register tile at a time."""

    name = "tile"

    @cached_property
    def outline(self) -> Outline:
        return tile_outline(self)

    def plan(self, settings: IntArray) -> Plan:
        return self.nest(settings).plan

    def nest(self, settings: IntArray) -> TileNest:
        """Return the nests of `settings` (P, J). The last result is cached, because leaves and
        memory use are computed for the same settings."""
        for known, nest in self._last:
            if np.array_equal(known, settings):
                return nest
        t = self.values(settings)
        nest = TileNest(t, *tile_plan(t, self.outline))
        self._last[:] = [(settings.copy(), nest)]
        return nest

    @cached_property
    def _last(self) -> list[tuple[IntArray, TileNest]]:
        return []

    def leaves(self, settings: IntArray) -> Iterator[Leaf]:
        return self.nest(settings).leaves()

    def memory(self, settings: IntArray) -> MemoryUse:
        return tile_memory(self.nest(settings))

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        nest = self.nest(np.asarray([setting]))
        TileTrace(writer, self.chosen(setting), nest.plan.loops(), nest.remainders).write()
