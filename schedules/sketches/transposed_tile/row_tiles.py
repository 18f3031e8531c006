"""Tiles of a reduction that is computed inside the outer loops of a later stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...arrays import IntArray
from ...leaves import Leaf, LeafLoop, Statement
from ...primitives import ComputeAt
from ..tile.sketch import TileSketch
from ..tile.trace import TileTrace
from ..writer import TraceWriter


@dataclass(frozen=True)
class RowTiles(TileSketch):
    """The sketch of a reduction whose first `outer` axes are the loops of a later stage."""

    def packing(self, settings: IntArray) -> Iterator[Leaf]:
        """Yield a leaf without operations in each parallel loop that packs an operand. What is
        copied is memory use."""
        t = self.values(settings)
        for read in self.packable:
            dim = self.longest_dim(read)
            packs = t.packs & ~(t.prepacks & (read in self.prepacked))
            if dim is not None:
                shared = packs & (t.parallel > 0)
                steps = self.whole_box(read)[dim]
                loop = LeafLoop(frozenset({read.tensor}), steps, None, shared)
                yield Leaf(loop, Statement(), frequency=packs)

    def write_inside(self, writer: TraceWriter, setting: Sequence[int], place: str) -> None:
        """Compute the stage in loop `place`, and emit the steps of its tiles."""
        nest = self.nest(np.asarray([setting]))
        levels, remainders = nest.plan.loops(), nest.remainders
        trace = RowTrace(writer, self.chosen(setting), levels, remainders)
        trace.move(place)
        trace.write()


@dataclass
class RowTrace(TileTrace):
    """Emits the trace steps of one setting of `RowTiles`."""

    moved: Mapping[str, str] = field(default_factory=dict)
    """The loops of the moved stage, by the loops of its output axes. Axes of one element have
    none."""

    def move(self, place: str) -> None:
        """Compute the stage in loop `place`, into a private buffer."""
        w = self.w
        w.do(*self.k.view.phase_steps)
        made = w.remake(ComputeAt(self.stage, place))
        self.moved = {old: new for old, (new,) in made.items()}

    def _divide_axes(self) -> None:
        """Split the axes of the moved stage as in the stage view."""
        view, names = self.k.view, dict(self.moved)
        for step in view.axis_splits:
            loop = names[step.loop]
            names[f"{step.loop}o"], names[f"{step.loop}i"] = self.w.split(loop, step.factor)
        self.outer = {loop.name: names.get(loop.name, "") for loop in view.spatial}
