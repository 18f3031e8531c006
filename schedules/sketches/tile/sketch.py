"""The tile sketch: reductions with a spatial vector axis, computed one register tile at a time.

It matches every stage with a read that does not depend on some spatial axis, so that a register
tile of outputs reuses what it loads: matrix products in any layout, convolutions of any rank,
grouped and batched forms, and expressions without a name. The loops, outermost first:

    batch axes | blocks of columns and rows (either order) | blocks of the reduction
    [pack the column operands] [copy the row operands]
    tiles of columns and rows (either order) | reduction | unrolled tile | vector

"Columns" is the vector axis; "rows" are up to two spatial axes that the column operands do not
depend on. `stage.py` has the facts of the stage, `analysis/tile_roles.py` the role of each loop,
`operands.py` what can be packed or copied, `settings.py` the knobs, `limits.py` feasibility,
`loops.py` the loops of a setting, `trace.py` their steps.
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
    """See the module."""

    name = "tile"

    @cached_property
    def outline(self) -> Outline:
        """The axes of a tile, and its accesses."""
        return tile_outline(self)

    def plan(self, settings: IntArray) -> Plan:
        """Blocks, tiles, and what is inside of them: see `loops.py`."""
        return self.nest(settings).plan

    def nest(self, settings: IntArray) -> TileNest:
        """The nests of (P, J) `settings`. The last result is cached, since instructions and traffic
        are counted in turn."""
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
        """Updates of the accumulators, and what is done with these: see `leaves.py`."""
        return self.nest(settings).leaves()

    def memory(self, settings: IntArray) -> MemoryUse:
        """Copies, distant operands and strided rows: see `memory.py`."""
        return tile_memory(self.nest(settings))

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        nest = self.nest(np.asarray([setting]))
        TileTrace(writer, self.chosen(setting), nest.plan.loops(), nest.tails).write()
