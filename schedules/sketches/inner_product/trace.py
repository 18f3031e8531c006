"""Emit the trace of one setting of the inner-product sketch."""

from __future__ import annotations

from collections.abc import Mapping

from ...plan import LoopLevel
from ...primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    Parallel,
    Partition,
    Prefetch,
    RFactor,
    TransformLayout,
    Vectorize,
)
from ...primitives.places import ROOT
from ..analysis.stages import StageRead
from ..writer import (
    BATCHES,
    BLOCKS,
    BODY,
    STEPS,
    TILES,
    UNROLLED,
    TraceWriter,
    called,
)
from .roles import InnerProductSettings, InnerProductStage


def write_inner_product(
    stage: InnerProductStage, w: TraceWriter, v: InnerProductSettings[int], levels: list[LoopLevel]
) -> None:
    """Append the steps of setting `v`, whose plan has `levels`, to the trace of `w`."""
    roles, name, in_blocks = stage.roles, stage.view.name, v.reduction_blocks > 1
    wide = f"{name}.wide"
    w.do(*stage.view.phase_steps)
    for n, read in enumerate(roles.transposed):
        _transpose(stage, w, read, f"{name}.turned{n}")
    for n, read in enumerate(stage.shared if v.pack_rows else ()):
        _pack(stage, w, read, f"{name}.packed{n}")
    steps, within = w.split(roles.along.name, stage.lanes)
    last = {old: new for old, (new,) in w.remake(RFactor(within, wide)).items()}
    outside = (x for x in levels if x.role in (BATCHES, BLOCKS, TILES) and x.loop in last)
    results = [x._replace(loop=last[x.loop]) for x in outside]
    tile = [last[loop.name] for loop in (roles.many, roles.few) if loop.name in last]
    made = w.arrange([*results, *(LoopLevel(loop, 1, UNROLLED) for loop in tile)], first=tile)
    around = [loop for level, loop in made if level.role in (BATCHES, BLOCKS)]
    column_tile, *row_tiles = called(made, TILES)
    around = around if in_blocks else [*around, column_tile]
    outer = w.fuse_all(around) if v.parallel else around[0]
    inner = outer if v.parallel else around[-1]
    row_tile = result_tile = row_tiles[0] if row_tiles else inner
    ahead, place = outer, inner if in_blocks else row_tile
    moved = w.remake(ComputeAt(wide, place, register=not in_blocks))
    sums = _sums(stage, w, levels, {old: new for old, (new,) in moved.items()}, (steps, within))
    if in_blocks:
        (ahead, row_tile), (*_, steps) = called(sums, TILES), called(sums, STEPS)
    w.do(CacheWrite(wide, row_tile, f"{wide}.acc"))
    w.do(CacheWrite(name, result_tile, f"{name}.total"), Vectorize(last[within]))
    if v.prefetch:
        shared = row_tile if row_tiles and w.loop(row_tile).extent > 1 else ""
        line = stage.target.line_bytes // roles.large.dtype.bytes
        w.do(Prefetch(roles.large.tensor, ahead, 1, steps, shared, line))
    whole = roles.along.extent // stage.lanes
    if whole and roles.along.extent % stage.lanes:
        w.do(Partition(steps, whole))
    if v.parallel:
        w.do(Parallel(outer))


def _sums(
    stage: InnerProductStage,
    w: TraceWriter,
    levels: list[LoopLevel],
    moved: Mapping[str, str],
    walk: tuple[str, str],
) -> list[tuple[LoopLevel, str]]:
    """Arrange the loops of the partial sums and return them.

    Without blocks, a tile is summed over the whole reduction in registers. With blocks, the sums of
    a block of tiles are stored in memory. One part of the reduction then follows the other, so that
    the data that tiles share stays in the first cache. `moved` maps old to new loop names. `walk`
    are the loop along the reduction and the loop over lanes.
    """
    roles, names, (steps, within) = stage.roles, [x.name for x in stage.view.spatial], walk
    in_blocks = any(level.role == BLOCKS for level in levels)
    if in_blocks:
        tile = [names.index(loop.name) for loop in (roles.many, roles.few)]
        others = (n for n in range(len(names)) if n not in tile)
        order = (*others, *tile, len(names))  # the sums of a tile are contiguous
        w.do(TransformLayout(f"{stage.view.name}.wide", (), tuple((n, 0) for n in order)))
    inside = []
    for level in levels:
        if level.loop == roles.along.name and level.step > 1:
            inside.append(level._replace(loop=steps, step=level.step // stage.lanes))
        elif level.loop == roles.along.name:
            inside.append(level._replace(loop=moved[within]))
        elif level.role in (STEPS, BODY) or (in_blocks and level.role == TILES):
            own = moved.get(level.loop, "") if level.loop in names else level.loop
            inside.append(level._replace(loop=own))
    return w.arrange(inside, first=[moved.get(x.name, "") for x in (roles.few, roles.many)])


def _pack(stage: InnerProductStage, w: TraceWriter, read: StageRead, name: str) -> None:
    """Emit a copy of `read` in which the vectors of all rows in one step are adjacent."""
    dim, few = (read.own_dim(loop.name) for loop in (stage.roles.along, stage.roles.few))
    assert dim is not None
    assert few is not None
    others = tuple((d, 0) for d in range(len(read.shape)) if d not in (dim, few))
    w.do(CacheRead(read.tensor, ROOT, name))
    along = w.loops_by_dim(name)[dim]
    w.do(TransformLayout(name, ((dim, stage.lanes),), (*others, (dim, 1), (few, 0), (dim, 2))))
    _, lane = w.split(along, stage.lanes)
    w.do(Vectorize(lane))


def _transpose(stage: InnerProductStage, w: TraceWriter, read: StageRead, name: str) -> None:
    """Emit one copy of `read` that is contiguous along the reduction."""
    dim = read.own_dim(stage.roles.along.name)
    assert dim is not None
    w.do(CacheRead(read.tensor, ROOT, name))
    w.keep_last(name, dim)
