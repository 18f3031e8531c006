"""The tile sketch: reductions with a spatial vector axis, computed a register tile at a time.

It fits every stage whose reads leave some spatial axis out, so that a register tile of outputs
reuses what it loads: matrix products in any layout, convolutions of any rank, grouped and
batched forms, and expressions nobody has named. The loops, outer to inner:

    batch axes | blocks of columns and rows (either order) | blocks of the reduction
      [pack the column operands] [copy the row operands]
        tiles of columns and rows (either order) | reduction | unrolled tile | vector

"Columns" is the vector axis V; "rows" are up to two spatial axes the column operands do not use.

What is known of the stage is in `stage.py`, which loop plays which part in `roles.py`, what can be
packed or copied in `operands.py`, what there is to choose in `knobs.py`, which settings fit in
`limits.py`, the loops they stand for in `loops.py`, the steps that make them in `trace.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ...arrays import IntArray
from ...plan import Outline, Plan
from ..writer import TraceWriter
from .default import tile_default
from .knobs import TileKnobs
from .loops import tile_outline, tile_plan, tile_sizes
from .trace import TileTrace


@dataclass(frozen=True)
class TileSketch(TileKnobs):
    """See the module."""

    name = "tile"

    @cached_property
    def outline(self) -> Outline:
        """The axes of a tile, and what it touches."""
        return tile_outline(self)

    def plan(self, settings: IntArray) -> Plan:
        """Blocks, tiles, and what is inside of them: see `loops.py`."""
        v = self.values(settings)
        return tile_plan(self, self.outline, v, tile_sizes(self, v))

    def default(self) -> tuple[int, ...]:
        """A feasible setting that is sensible with no model: see `tile_default`."""
        return tile_default(self)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        one = np.asarray([setting])
        s = {key: int(value[0]) for key, value in self.sizes(one).items()}
        TileTrace(writer, self, self.chosen(setting), s, self.plan(one).loops()).write()
