"""Panels that the first tile of rows packs: its reduction copies each step's columns and uses them.

    pack: for k: P[k] = B[k]                  tile 0: for k: P[k] = B[k]; acc += A[k] * P[k]
    for t: for k: acc += A[t, k] * P[k]  ->   for t in 1..: for k: acc += A[t, k] * P[k]

A panel that is packed on its own makes every tile of rows wait for it, and the loads of the copy
for memory. Multiply-adds of the first tile leave most ports of loads and stores free, and its steps
last long enough to prefetch what is copied some steps later. 512x2048x1024 on Zen 5, one thread
and two: 0.979 and 0.978 of the time; 1024x1024x1024: 0.99; the copy alone, prefetched: 0.99.
"""

from __future__ import annotations

from math import ceil

from ...arrays import BoolArray, IntArray
from ...hardware import FMA_PIPES
from ...nest.loop_ir import LoopKind
from ...primitives import Merge, Prefetch, Unroll
from ..analysis.stages import StageRead
from ..writer import TraceWriter
from .stage import TileStage

AHEAD_CYCLES = 600.0
"""How long before it is copied a line is asked for: the latency of the last cache, and of memory
on most machines. Half and double of it are as good."""


def packed_by_first_tile(stage: TileStage) -> tuple[StageRead, ...]:
    """The column operands that the first tile can pack; all that are packed in a call, or none.

    Each is as contiguous as columns are, and each step of the reduction reads a part of its own.
    """
    view, packed = stage.view, stage.packed_inside(ahead=False)
    loops = {loop.name for loop in view.reduce if loop.extent > 1}
    fits = (
        not read.padded
        and stage.moves_as_one(read)
        and read.element_stride(stage.roles.columns.name) == 1
        and all(read.own_dim(name) is not None for name in loops)
        for read in packed
    )
    plain = not view.phase_steps and not view.axis_splits and not view.guards
    plain = plain and stage.step_distance == 1 and not stage.is_sliding
    return packed if plain and all(fits) else ()


def can_fuse_packing(stage: TileStage, v: dict[str, IntArray], s: dict[str, IntArray]) -> BoolArray:
    """(P,) whether a panel is one tile wide and packed once for several tiles of rows, in whole
    blocks of the reduction, and nothing else changes its loops."""
    one = (s["col_per"] == 1) & (s["row_blocks"] == 1) & (s["row2_blocks"] == 1)
    several = s["row_per"] * s["row2_per"] > 1
    whole = (v["split_reduction"] == 1) & (stage.roles.main.extent % s["kc"] == 0)
    as_is = (v["skip_padding"] == 0) & (v["pack_columns"] == 1) & (v["row_blocks_outermost"] == 0)
    steps = s["kc"] > v["unroll_reduction"]
    found: BoolArray = one & several & whole & as_is & steps & (v["row_tiles_innermost"] == 0)
    if stage.epilogue:  # partial sums wait in a buffer of their own
        found &= s["k_count"] == 1
    return found


def merge_with_first_tile(
    w: TraceWriter, stage: TileStage, v: dict[str, int], s: dict[str, int], depth: list[str]
) -> None:
    """Let the first tile pack. Called when all else is written but what threads share; `depth` are
    the loops of the reduction that are not written out, outermost first."""
    name = stage.view.name
    _stand_alone(w, f"{name}.pack0", f"{name}.acc", depth[0])
    step_cycles = s["mr"] * s["mr2"] * v["tile_vectors"] * v["unroll_reduction"] * s["taps_inside"]
    ahead = ceil(AHEAD_CYCLES * FMA_PIPES / step_cycles)
    for n, read in enumerate(packed_by_first_tile(stage)):
        axes = (*depth[:-1], stage.roles.main.name)
        dims = [(read.own_dim(axis), loop) for axis, loop in zip(axes, depth, strict=True)]
        # A tap loop of one iteration is in no dimension, and is left around the merged ones.
        walked = {f"{name}.pack{n}.{dim}": loop for dim, loop in dims if dim is not None}
        _merge(w, f"{name}.pack{n}", walked, v["unroll_reduction"])
        if ahead < w.loop(depth[-1]).extent:
            line = stage.target.line_bytes // read.dtype.bytes
            w.do(Prefetch(read.tensor, depth[-1], ahead, depth[-1], "", line))


def _stand_alone(w: TraceWriter, pack: str, sums: str, reduction: str) -> None:
    """Give the first tile, of those that use what is packed in `pack`, code of its own."""
    _, packing = w.writer_of(pack)
    _, chain = w.update_of(sums)
    names = [loop.var for loop in chain]
    shared = sum(loop in packing for loop in chain)
    for name in names[shared : names.index(reduction)]:
        if w.loop(name).extent > 1:
            w.partition(name, 1)


def _merge(w: TraceWriter, pack: str, walked: dict[str, str], unroll: int) -> None:
    """Pack in the reduction's loops: `walked` gives that of each of the copy's own."""
    serial = [loop.var for loop in w.own_loops(pack) if loop.kind is LoopKind.SERIAL]
    inside = [name for name in serial if name not in walked]
    own = list(walked)
    if unroll > 1:
        own[-1], within = w.split(own[-1], unroll)
        inside.insert(0, within)
    w.reorder(*own, *inside)
    w.do(*(Unroll(name) for name in inside))
    w.do(*(Merge(*pair) for pair in zip(own, walked.values(), strict=True)))
