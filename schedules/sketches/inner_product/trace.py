"""The trace of one setting of the sketch of inner products."""

from __future__ import annotations

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
    STEPS,
    TILES,
    UNROLLED,
    WRITTEN_OUT,
    TraceWriter,
    called,
)
from .roles import InnerProductStage


def write_inner_product(
    stage: InnerProductStage, w: TraceWriter, v: dict[str, int], levels: list[LoopLevel]
) -> None:
    """Add the steps of one setting, `v`, whose plan has `levels`, to a trace that may have other
    groups' steps."""
    roles, name, in_blocks = stage.roles, stage.view.name, v["reduction_blocks"] > 1
    w.do(*stage.view.phase_steps)
    for n, read in enumerate(roles.transposed):
        _transpose(stage, w, read, f"{name}.turned{n}")
    for n, read in enumerate(stage.shared if v["pack_rows"] else ()):
        _pack(stage, w, read, f"{name}.packed{n}")
    steps, within = w.split(roles.along.name, stage.lanes)
    w.do(RFactor(within, f"{name}.wide"))
    results = [
        x._replace(loop=f"{x.loop}.rf") for x in levels if x.role in (BATCHES, BLOCKS, TILES)
    ]
    tile = [f"{loop.name}.rf" for loop in (roles.many, roles.few)]
    made = w.arrange([*results, *(LoopLevel(loop, 1, UNROLLED) for loop in tile)], first=tile)
    around = [loop for level, loop in made if level.role in (BATCHES, BLOCKS)]
    column_tile, row_tile = called(made, TILES)
    around = around if in_blocks else [*around, column_tile]
    outer = w.fuse_all(around) if v["parallel"] else around[0]
    ahead, place = outer, row_tile
    if in_blocks:
        place = outer if v["parallel"] else around[-1]
    w.do(ComputeAt(f"{name}.wide", place, register=not in_blocks))
    sums = _sums(stage, w, levels, steps, in_blocks)
    if in_blocks:
        (ahead, row_tile), (*_, steps) = called(sums, TILES), called(sums, STEPS)
    w.do(CacheWrite(f"{name}.wide", row_tile, f"{name}.wide.acc"))
    w.do(CacheWrite(name, called(made, TILES)[-1], f"{name}.total"), Vectorize(f"{within}.rf"))
    if v["prefetch"]:
        shared = row_tile if w.loop(row_tile).extent > 1 else ""
        line = stage.target.line_bytes // roles.large.dtype.bytes
        w.do(Prefetch(roles.large.tensor, ahead, 1, steps, shared, line))
    whole = roles.along.extent // stage.lanes
    if whole and roles.along.extent % stage.lanes:
        w.do(Partition(steps, whole))
    if v["parallel"]:
        w.do(Parallel(outer))


def _sums(
    stage: InnerProductStage, w: TraceWriter, levels: list[LoopLevel], steps: str, in_blocks: bool
) -> list[tuple[LoopLevel, str]]:
    """The partial sums, of a tile over the whole reduction in registers, or of a block of tiles
    kept in memory, a block of the reduction after the other: what tiles share of it stays in the
    first cache."""
    roles, wide, lanes = stage.roles, f"{stage.view.name}.wide", stage.lanes
    names = [loop.name for loop in stage.view.spatial]
    if in_blocks:
        tile = [names.index(loop.name) for loop in (roles.many, roles.few)]
        others = (n for n in range(len(names)) if n not in tile)
        order = (*others, *tile, len(names))  # a tile's sums side by side
        w.do(TransformLayout(wide, (), tuple((n, 0) for n in order)))
    moved = {name: f"{wide}.{n}" for n, name in enumerate(names)}
    inside = []
    for level in levels:
        if level.loop == roles.along.name and level.step > 1:
            inside.append(level._replace(loop=steps, step=level.step // lanes))
        elif level.loop == roles.along.name:
            inside.append(level._replace(loop=f"{wide}.{len(names)}"))
        elif level.role in (STEPS, WRITTEN_OUT) or (in_blocks and level.role == TILES):
            inside.append(level._replace(loop=moved.get(level.loop, level.loop)))
    return w.arrange(inside, first=(moved[roles.few.name], moved[roles.many.name]))


def _pack(stage: InnerProductStage, w: TraceWriter, read: StageRead, name: str) -> None:
    """A copy of `read` with what a step takes of all rows side by side."""
    dim, few = (read.own_dim(loop.name) for loop in (stage.roles.along, stage.roles.few))
    assert dim is not None
    assert few is not None
    others = tuple((d, 0) for d in range(len(read.shape)) if d not in (dim, few))
    w.do(CacheRead(read.tensor, ROOT, name))
    w.do(TransformLayout(name, ((dim, stage.lanes),), (*others, (dim, 1), (few, 0), (dim, 2))))
    _, lane = w.split(f"{name}.{dim}", stage.lanes)
    w.do(Vectorize(lane))


def _transpose(stage: InnerProductStage, w: TraceWriter, read: StageRead, name: str) -> None:
    """A copy of `read`, made once, that is contiguous along the reduction."""
    dim = read.own_dim(stage.roles.along.name)
    assert dim is not None
    w.do(CacheRead(read.tensor, ROOT, name))
    w.keep_last(name, dim)
