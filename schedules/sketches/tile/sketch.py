"""The tile sketch: reductions with a spatial vector axis, computed a register tile at a time.

It fits every stage whose reads leave some spatial axis out, so that a register tile of outputs
reuses what it loads: matrix products in any layout, convolutions of any rank, grouped and
batched forms, and expressions nobody has named. The loops, outer to inner:

    batch axes | blocks of columns and rows (either order) | blocks of the reduction
      [pack the column operands] [copy the row operands]
        tiles of columns and rows (either order) | reduction | unrolled tile | vector

"Columns" is the vector axis V; "rows" are up to two spatial axes the column operands do not use.

What is known of the stage is in `stage.py`, which loop plays which part in `roles.py`, what can be
packed or copied in `operands.py`, what there is to choose in `settings.py`, which settings fit
in `limits.py`, the loops they stand for in `loops.py`, the steps that make them in `trace.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...arrays import BoolArray, IntArray
from ...leaves import Leaf
from ...memory_use import MemoryUse
from ...plan import Outline, Plan
from ..knobs import Knobbed
from ..writer import TraceWriter
from .default import tile_default
from .leaves import TileNest
from .limits import feasible_tiles
from .loops import tile_outline, tile_plan
from .memory import tile_memory
from .settings import TileKnobs, TileSettings
from .stage import TileStage
from .trace import TileTrace


@dataclass(frozen=True)
class TileSketch(TileStage, Knobbed[TileSettings[IntArray], TileSettings[int]]):
    """See the module."""

    name = "tile"
    SETTINGS = TileSettings

    def settings_of(self, values: Mapping[str, Any]) -> Any:
        return TileSettings(**values, stage=self)

    @cached_property
    def offered(self) -> TileKnobs[tuple[int, ...]]:
        """The values of all knobs."""
        return TileKnobs(**{knob.name: knob.values for knob in self.knobs})

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) whether tile, panel and code fit the target, and no knob is without effect."""
        return feasible_tiles(self.values(settings))

    @cached_property
    def outline(self) -> Outline:
        """The axes of a tile, and what it touches."""
        return tile_outline(self)

    def plan(self, settings: IntArray) -> Plan:
        """Blocks, tiles, and what is inside of them: see `loops.py`."""
        return self.nest(settings).plan

    def nest(self, settings: IntArray) -> TileNest:
        """The nests of (P, J) `settings`: those asked about last are kept, since instructions and
        traffic are counted in turn."""
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
        """Updates of sums, and what is done with these: see `leaves.py`."""
        return self.nest(settings).leaves()

    def memory(self, settings: IntArray) -> MemoryUse:
        """Copies, distant operands and strided rows: see `memory.py`."""
        return tile_memory(self.nest(settings))

    def default(self) -> tuple[int, ...]:
        """A feasible setting that is sensible with no model: see `default.py`."""
        return tile_default(self)

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        nest = self.nest(np.asarray([setting]))
        TileTrace(writer, self.chosen(setting), nest.plan.loops(), nest.tails).write()
