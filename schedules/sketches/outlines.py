"""The outline of one stage: its loops as axes, and what it reads and writes along them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..plan import Access, LoopAxis, Outline, access_of
from .analysis.stages import StageLoop, StageRead, StageView, once

NOTHING = LoopAxis("", 1)
"""An axis that a stage does not have."""


def stage_outline(
    view: StageView,
    loops: Sequence[StageLoop | None],
    reads: Sequence[StageRead],
    extents: Mapping[str, int] | None = None,
    epilogue: StageView | None = None,
) -> Outline:
    """The axes `loops`, of one element where there is none and of another length where `extents`
    says so; `reads`, and the stage's own tensor, over them. An `epilogue`, with loops of the same
    names, has that tensor for itself: what else it reads and its own tensor take its place."""
    axes = tuple(
        LoopAxis(loop.name, (extents or {}).get(loop.name, loop.extent)) if loop else NOTHING
        for loop in loops
    )
    names = [axis.name for axis in axes]
    found = [access_of(read.tensor, read.dtype.bytes, read.index, names) for read in reads]
    if epilogue:
        names = [f"{epilogue.name}{name[len(view.name) :]}" for name in names]
        rest = [read for read in once(epilogue.reads) if read.tensor != view.name]
        found += [access_of(read.tensor, read.dtype.bytes, read.index, names) for read in rest]
        view = epilogue
    own = tuple(tuple(int(loop.name == name) for name in names) for loop in view.spatial)
    output = Access(view.name, view.dtype.bytes, own, is_output=True)
    return Outline(axes, (*found, output))


def bits_of(outline: Outline, reads: Iterable[StageRead]) -> int:
    """The bits of `reads` among the accesses, see `Plan.dense`."""
    buffers = [access.buffer for access in outline.accesses]
    return sum(1 << buffers.index(name) for name in {read.tensor for read in reads})
