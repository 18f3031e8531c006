"""The trace of one setting of the sketch of dot products."""

from __future__ import annotations

from ...primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    Parallel,
    Partition,
    Prefetch,
    RFactor,
    TransformLayout,
    Unroll,
    Vectorize,
)
from ...primitives.places import ROOT
from ..analysis import Read
from ..writer import TraceWriter
from .stage import InnerProductStage


def write_inner_product(stage: InnerProductStage, w: TraceWriter, v: dict[str, int]) -> None:
    """Add the steps of one setting, `v`, to a trace that may have other clusters' steps."""
    roles, name = stage.roles, stage.view.name
    w.do(*stage.view.presolve)
    for n, read in enumerate(roles.turned):
        _turn(stage, w, read, f"{name}.turned{n}")
    for n, read in enumerate(stage.shared if v["pack"] else ()):
        _pack(stage, w, read, f"{name}.packed{n}")
    steps, within = w.split(roles.along.name, stage.lanes)
    w.do(RFactor(within, f"{name}.wide"))
    many, column = w.split(f"{roles.many.name}.rf", v["columns"])
    few, row = w.split(f"{roles.few.name}.rf", v["rows"])
    tasks = [f"{loop.name}.rf" for loop in roles.batch]
    tiles: list[str] = []
    if v["blocks"] > 1:
        many, *tiles = w.split(many, stage.tiles_a_block(v["columns"]))
    w.reorder(*tasks, many, *tiles, few, column, row)
    outer, *inside = [*tasks, many]
    if v["parallel"]:
        for other in inside:
            outer = w.fuse(outer, other)
    if v["blocks"] > 1:
        block = outer if v["parallel"] else many
        ahead, deal, steps = _blocked(stage, w, v, block, steps)
    else:
        _whole(stage, w, few)
        ahead, deal = outer, few
    w.do(Unroll(row), Unroll(column))
    w.do(CacheWrite(name, few, f"{name}.total"), Vectorize(f"{within}.rf"))
    if v["prefetch"]:
        shared = deal if w.loop(deal).extent > 1 else ""
        line = stage.target.caches[0].line_bytes // roles.passing.dtype.bytes
        w.do(Prefetch(roles.passing.tensor, ahead, 1, steps, shared, line))
    if roles.along.extent % stage.lanes:
        w.do(Partition(steps, roles.along.extent // stage.lanes))
    if v["parallel"]:
        w.do(Parallel(outer))


def _whole(stage: InnerProductStage, w: TraceWriter, few: str) -> None:
    """The partial sums of a tile over the whole reduction, in registers."""
    wide = f"{stage.view.name}.wide"
    w.do(ComputeAt(wide, few, register=True))
    own = w.own_loops(wide, inside=few)
    *tile, last = [loop.var for loop in own if not loop.reduce]
    w.reorder(*(loop.var for loop in own if loop.reduce), *tile, last)
    w.do(Vectorize(last), *(Unroll(name) for name in tile))
    w.do(CacheWrite(wide, few, f"{wide}.acc"))


def _blocked(
    stage: InnerProductStage, w: TraceWriter, v: dict[str, int], block: str, steps: str
) -> tuple[str, str, str]:
    """The partial sums of a block of tiles, kept in memory, a block of the reduction after the
    other: what tiles share of it stays in the first cache. The loops over tiles, their rows, steps.
    """
    roles, wide = stage.roles, f"{stage.view.name}.wide"
    w.do(ComputeAt(wide, block))
    names = [loop.name for loop in stage.view.spatial]
    most, least = names.index(roles.many.name), names.index(roles.few.name)
    others = (n for n in range(len(names)) if n not in (most, least))
    order = (*others, most, least, len(names))  # a tile's sums side by side
    w.do(TransformLayout(wide, (), tuple((n, 0) for n in order)))
    last = f"{wide}.{len(names)}"
    few, row = w.split(f"{wide}.{least}", v["rows"])
    tile, column = w.split(f"{wide}.{most}", v["columns"])
    vectors = roles.along.extent // stage.lanes
    parts, steps = w.split(steps, vectors // v["blocks"])
    taps = [loop.name for loop in roles.taps]
    w.reorder(parts, tile, few, *taps, steps, column, row, last)
    w.do(Vectorize(last), Unroll(column), Unroll(row), CacheWrite(wide, few, f"{wide}.acc"))
    return tile, few, steps


def _pack(stage: InnerProductStage, w: TraceWriter, read: Read, name: str) -> None:
    """A copy of `read` with what a step takes of all rows side by side."""
    dim, few = (read.own_dim(loop.name) for loop in (stage.roles.along, stage.roles.few))
    assert dim is not None
    assert few is not None
    others = tuple((d, 0) for d in range(len(read.shape)) if d not in (dim, few))
    w.do(CacheRead(read.tensor, ROOT, name))
    w.do(TransformLayout(name, ((dim, stage.lanes),), (*others, (dim, 1), (few, 0), (dim, 2))))
    _, lane = w.split(f"{name}.{dim}", stage.lanes)
    w.do(Vectorize(lane))


def _turn(stage: InnerProductStage, w: TraceWriter, read: Read, name: str) -> None:
    """A copy of `read`, made once, that is contiguous along the reduction."""
    dim = read.own_dim(stage.roles.along.name)
    assert dim is not None
    others = tuple((d, 0) for d in range(len(read.shape)) if d != dim)
    w.do(CacheRead(read.tensor, ROOT, name), TransformLayout(name, (), (*others, (dim, 0))))
