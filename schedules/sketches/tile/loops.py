"""The loops of the tile sketch: which loops exist, their order and their axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ...arrays import BoolArray, IntArray, Number, map_unique
from ...nest.loop_ir import LoopKind
from ...plan import Level, Outline, Plan
from ..analysis.stages import StageLoop
from ..statements import bits_of, stage_outline
from ..writer import BATCHES, BLOCKS, BODY, DEPTH, PARTS, STEPS, TILES
from .remainders import RemainderTiles, remainder_tiles
from .settings import TESTED_STEPS, TileSettings
from .stage import TileStage

COLUMNS, ROWS, ROWS2, MAIN = range(4)
"""Numbers of the first axes of a tile. The batch, further row and tap loops have an axis each."""


def tile_outline(stage: TileStage) -> Outline:
    """Return the axes and accesses of a tile. An axis of one element represents a missing row
    axis."""
    roles = stage.roles
    rows = (*roles.rows, *[None] * (2 - len(roles.rows)))
    loops = (roles.columns, *rows, roles.main, *roles.batch, *roles.outer_rows, *roles.taps)
    return stage_outline(stage.view, loops, stage.operands, epilogue=stage.epilogue)


def tile_plan(
    t: TileSettings[IntArray], outline: Outline
) -> tuple[Plan, dict[str, RemainderTiles]]:
    """Return the plan of settings, and the remainder tiles by loop: along rows, innermost first,
    then along columns."""
    at = {axis.name: number for number, axis in enumerate(outline.axes)}
    levels = [*_around_tiles(t, at), *_of_a_tile(t, at)]
    names = [outline.axes[level.axis].name for level in levels]
    remainders = remainder_tiles(t, _blocks(t, levels, names))
    shares = _shares(t, remainders)
    for n, (axis, level) in enumerate(zip(names, levels, strict=True)):
        if axis in remainders and level.role in (BLOCKS, TILES):
            codes = (
                remainders[axis].block_versions
                if level.role == BLOCKS
                else remainders[axis].tile_versions
            )
            levels[n] = replace(level, num_versions=np.where(level.present, codes, 1))
        elif axis in shares and level.role == BATCHES:
            levels[n] = replace(level, active_fraction=np.where(level.present, shares[axis], 1.0))
    first = [level.role for level in levels].index(STEPS)
    levels[first] = replace(levels[first], active_fraction=shares[STEPS])
    nontemporal = t.nontemporal_stores > 0
    dense = _dense(t, outline)
    return Plan(outline, tuple(levels), len(nontemporal), dense, nontemporal), remainders


def _around_tiles(t: TileSettings[IntArray], at: dict[str, int]) -> Iterator[Level]:
    """Yield the levels outside the tiles: parts of the reduction, batches, and blocks of rows and
    columns in either order.

    Threads divide the first `parallel` loops over blocks and all loops around them. Blocks of the
    reduction are nested inside these loops, or inside the first one if there are none. Each thread
    executes a contiguous range of iterations. Batches of unequal length are therefore nested inside
    the divided blocks, so that short and long batches alternate. Batches that share the copies of
    rows are nested inside all blocks, and threads do not divide them.

    Inside the loops of a later stage, threads divide no other loops than those.
    """
    stage = t.stage
    roles, threads = stage.roles, stage.target.threads > 1
    outside, divided = t.row_blocks_outermost == 1, t.parallel * (not stage.outer)
    part = roles.main.extent // t.split_reduction
    yield Level(MAIN, part, threads & t.splits, PARTS, present=t.splits)

    *rows, columns = ((x.loop, x.size * x.per_block) for x in t.tiled_axes)
    inside_columns = (*((loop, 1) for loop in roles.outer_rows), *reversed(rows))
    blocks = ((*columns, ~outside), *((*x, True) for x in inside_columns), (*columns, outside))
    last = np.clip(divided, 1, len(blocks) - 1)
    if stage.epilogue:
        last = np.full_like(divided, len(blocks) - 1)
    batches_behind = divided if stage.is_uneven and threads else np.zeros_like(divided)
    passed = np.zeros_like(divided)

    def batches(here: BoolArray | bool) -> Iterator[Level]:
        for n, loop in enumerate(roles.batch):
            present = here & (passed == batches_behind) & ~shares(loop)
            is_divided = (t.parallel > 0) & (n < stage.outer) if stage.outer else True
            if np.any(present):
                divides = threads & present & is_divided
                yield Level(at[loop.name], 1, divides, BATCHES, present=present)
        for loop in stage.sharing_batches:
            present = here & (passed == len(blocks) - 1) & shares(loop)
            if np.any(present):
                yield Level(at[loop.name], 1, role=BATCHES, present=present)

    def shares(loop: StageLoop) -> BoolArray:
        return t.shares_copies & (loop in stage.sharing_batches)

    yield from batches(here=True)
    for loop, block, here in blocks:
        shared = here & threads & (passed < divided)
        ends = loop is roles.columns and not stage.is_scattered
        lines = stage.view.outputs / loop.extent if ends else 0.0
        yield Level(at[loop.name], block, shared, BLOCKS, present=here, shared_rows=lines)
        passed = passed + here
        yield from batches(here)
        deep = here & (passed == last)
        yield Level(MAIN, t.kc, role=DEPTH, present=deep)


def copy_places(t: TileSettings[IntArray], levels: Sequence[Level]) -> tuple[IntArray, IntArray]:
    """Return the level at which columns are packed, and the level at which rows are copied, shape
    (P,) each.

    They are the levels over blocks of columns and of rows, or the innermost parallel level if that
    is further inside. If the reduction has several blocks, columns are packed at the level over
    these blocks. Rows are copied there only if that is further inside. If the stage is computed
    inside the loops of a later stage, columns are packed outside all levels, which is -1.
    """
    several = t.k_count > 1
    at, shared = dict[int, IntArray](), np.full(len(several), -1)
    for n, level in enumerate(levels):
        shared = np.where(level.is_parallel, n, shared)
        if level.role in (BLOCKS, DEPTH):
            at[level.axis] = np.where(level.present, n, at.get(level.axis, n))
    columns, rows = (np.maximum(at[n], shared) for n in (COLUMNS, ROWS if ROWS in at else COLUMNS))
    columns = np.where(several, at[MAIN], columns)
    rows = np.where(several, np.maximum(rows, at[MAIN]), rows)
    return np.where(t.stage.outer > 0, -1, columns), rows


def _blocks(
    t: TileSettings[IntArray], levels: Sequence[Level], names: Sequence[str]
) -> dict[str, tuple[BoolArray, BoolArray]]:
    """Return for each axis (divided, filled), shape (P,) each: whether threads divide its blocks,
    and whether a block contains code other than tiles.

    Such code is another loop that is fused into the same parallel loop, or a copy. Copies are
    considered only if there are phases.
    """
    copied = _last_copies(t, levels) if t.stage.phases else -1
    nothing = np.zeros(len(t.tile_rows), np.bool_)
    found = {axis.name: (nothing, nothing) for axis in t.tiled_axes}
    for n, (axis, level) in enumerate(zip(names, levels, strict=True)):
        if axis in found and level.role == BLOCKS:
            divided, filled = found[axis]
            filled = filled | level.is_parallel | (level.present & (n <= copied))
            found[axis] = divided | level.is_parallel, filled
    return found


def _last_copies(t: TileSettings[IntArray], levels: Sequence[Level]) -> IntArray:
    """Return the innermost level at which copies are made, or -1 if there are none, shape (P,)."""
    stage = t.stage
    columns, rows = copy_places(t, levels)
    now, others = (bool(stage.packed_inside(ahead)) for ahead in (False, True))
    packs = t.packs & np.where(t.prepacks, others, now)
    return np.maximum(np.where(packs, columns, -1), np.where(t.copies_rows, rows, -1))


def _shares(
    t: TileSettings[IntArray], remainders: Mapping[str, RemainderTiles]
) -> dict[str, Number]:
    """Return the fraction of iterations that conditions leave, by loop.

    For a batch axis of phases, it is the fraction of rows that the phases have. For the steps of a
    reduction, it is the fraction that remains after phases and after padding tests in outer loops.
    """
    stage = t.stage
    around = t.skips_around
    left = np.where(t.skips_blocks, stage.block_share, 1.0) if stage.block_conds else 1.0
    if stage.used_share < 1.0:
        left = left * np.where(t.k_count == 1, stage.used_share, 1.0)
    if not stage.view.guards and not around.any():
        return {STEPS: left}
    several = ((rows > 1).astype(np.int64) for rows in (t.tile_rows, t.tile_rows2))
    steps = (remainders[name].guard_step for name in stage.phase_rows)
    asked = (*several, t.unroll_window, around.astype(np.int64), *steps)
    found = map_unique(stage.shares_left, *asked)
    phases = dict.fromkeys(phase for phase, _, _ in stage.phases)
    shares = dict(zip([*phases, STEPS], found, strict=True))
    return {**shares, STEPS: shares[STEPS] * left}


def _of_a_tile(t: TileSettings[IntArray], at: dict[str, int]) -> Iterator[Level]:
    """Yield the levels over the tiles of a block, the levels over the steps of the reduction, and
    the unrolled levels. The unrolled levels are taps and steps, then rows and vectors."""
    stage = t.stage
    *rows, columns = t.tiled_axes
    inside, unroll = t.row_tiles_innermost == 1, t.unroll_reduction
    rows.reverse()
    yield Level(COLUMNS, columns.size, role=TILES, present=inside)
    yield from (Level(at[axis.name], axis.size, role=TILES) for axis in rows)
    yield Level(COLUMNS, columns.size, role=TILES, present=~inside)

    short = [loop.name for loop in stage.short_taps()]
    whole = {name: t.unrolls_tap(n) for n, name in enumerate(short)}
    for loop in stage.roles.taps:
        yield Level(at[loop.name], 1, role=STEPS, present=~whole.get(loop.name, unroll < 0))
    together = np.minimum(t.together, t.kc)
    if stage.starts_late:
        yield Level(MAIN, TESTED_STEPS, role=STEPS, present=t.skips_several)
    yield Level(MAIN, together, role=STEPS, present=unroll > 1)
    yield Level(MAIN, 1, role=STEPS, present=(unroll == 1) | (stage.step_distance > 1))
    unrolled = [
        Level(MAIN, stage.step_distance, False, BODY, LoopKind.UNROLLED, unroll > 1),
        *(
            Level(at[name], 1, False, BODY, LoopKind.UNROLLED, whole[name])
            for name in reversed(short)
        ),
    ]
    # Taps along the lanes share vectors, so they are adjacent.
    yield from reversed(unrolled) if stage.lane_step > 1 else unrolled

    for axis in rows:
        yield Level(at[axis.name], 1, role=BODY, kind=LoopKind.UNROLLED)
    yield Level(COLUMNS, stage.lanes, role=BODY, kind=LoopKind.UNROLLED)
    yield Level(COLUMNS, 1, role=BODY, kind=LoopKind.VECTORIZED)


def _dense(t: TileSettings[IntArray], outline: Outline) -> IntArray:
    """Return a bit mask of the accesses that are contiguous, shape (P,), as in
    `Plan.dense_mask`."""
    stage = t.stage
    bits = partial(bits_of, outline)
    panels = t.packs * bits(stage.packable) | t.prepacks * bits(stage.prepacked)
    # Prefetched data is in the cache like a copy, at any stride.
    nearby = t.prefetches * bits(stage.nonresident)
    return np.asarray(panels | nearby | t.copies_rows * bits(stage.copyable), np.int64)
