"""The loops of a tiled stage: which there are, in which order, and their axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from ...arrays import BoolArray, IntArray, Number, map_unique
from ...nest.loop_ir import LoopKind
from ...plan import Level, Outline, Plan
from ..statements import bits_of, stage_outline
from ..writer import BATCHES, BLOCKS, DEPTH, PARTS, STEPS, TILES, WRITTEN_OUT
from .settings import TileSettings
from .stage import TileStage
from .tails import RemainderTiles, remainder_tiles

COLUMNS, ROWS, ROWS2, MAIN = range(4)
"""The numbers of a tile's axes; then follow the loops of batch, of further rows and of taps, one
axis each."""


def tile_outline(stage: TileStage) -> Outline:
    """The axes of a tile, with one of extent one for each axis of rows that the stage lacks, and
    its accesses."""
    roles = stage.roles
    rows = (*roles.rows, *[None] * (2 - len(roles.rows)))
    loops = (roles.columns, *rows, roles.main, *roles.batch, *roles.outer_rows, *roles.taps)
    return stage_outline(stage.view, loops, stage.operands, epilogue=stage.epilogue)


def tile_plan(
    t: TileSettings[IntArray], outline: Outline
) -> tuple[Plan, dict[str, RemainderTiles]]:
    """The levels of settings, outermost first, and the remainder tiles along rows, innermost first,
    and along columns, by loop."""
    at = {axis.name: number for number, axis in enumerate(outline.axes)}
    levels = [*_around_tiles(t, at), *_of_a_tile(t, at)]
    names = [outline.axes[level.axis].name for level in levels]
    tails = remainder_tiles(t, _blocks(t, levels, names))
    shares = _shares(t, tails)
    for n, (axis, level) in enumerate(zip(names, levels, strict=True)):
        if axis in tails and level.role in (BLOCKS, TILES):
            codes = (
                tails[axis].block_versions if level.role == BLOCKS else tails[axis].tile_versions
            )
            levels[n] = replace(level, num_versions=np.where(level.present, codes, 1))
        elif axis in shares and level.role == BATCHES:
            levels[n] = replace(level, active_fraction=np.where(level.present, shares[axis], 1.0))
    first = [level.role for level in levels].index(STEPS)
    levels[first] = replace(levels[first], active_fraction=shares[STEPS])
    nontemporal = t.nontemporal_stores > 0
    dense = _dense(t, outline)
    return Plan(outline, tuple(levels), len(nontemporal), dense, nontemporal), tails


def _around_tiles(t: TileSettings[IntArray], at: dict[str, int]) -> Iterator[Level]:
    """Parts of the reduction, batches, and blocks in either order; threads divide `parallel` of the
    blocks with all that is around them. Blocks of the reduction come after these, or after the
    first. Each thread gets consecutive iterations, so batches of different length come after the
    blocks that are divided: then they alternate."""
    stage = t.stage
    roles, threads = stage.roles, stage.target.threads > 1
    outside, divided = t.row_blocks_outermost == 1, t.parallel
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
        here = here & (passed == batches_behind)
        if np.any(here):
            yield from (
                Level(at[loop.name], 1, threads & here, BATCHES, present=here)
                for loop in roles.batch
            )

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


def copy_places(levels: Sequence[Level], several: BoolArray) -> tuple[IntArray, IntArray]:
    """(P,) the levels at which panels, and copies of rows, are made: the level of blocks of columns
    and of rows, or the innermost parallel one; and that of blocks of the reduction if there are
    `several`, for rows if it is inside."""
    at, shared = dict[int, IntArray](), np.full(len(several), -1)
    for n, level in enumerate(levels):
        shared = np.where(level.is_parallel, n, shared)
        if level.role in (BLOCKS, DEPTH):
            at[level.axis] = np.where(level.present, n, at.get(level.axis, n))
    columns, rows = (np.maximum(at[n], shared) for n in (COLUMNS, ROWS if ROWS in at else COLUMNS))
    return np.where(several, at[MAIN], columns), np.where(several, np.maximum(rows, at[MAIN]), rows)


def _blocks(
    t: TileSettings[IntArray], levels: Sequence[Level], names: Sequence[str]
) -> dict[str, tuple[BoolArray, BoolArray]]:
    """By axis, (P,) whether threads divide the blocks along it, and whether a block contains more
    than tiles: loops fused with it into one parallel loop, or copies, which matter for phases only.
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
    """(P,) the innermost level at which copies are made, -1 if there are none."""
    stage = t.stage
    columns, rows = copy_places(levels, t.k_count > 1)
    now, others = (bool(stage.packed_inside(ahead)) for ahead in (False, True))
    packs = t.packs & np.where(t.prepacks, others, now)
    return np.maximum(np.where(packs, columns, -1), np.where(t.copies_rows, rows, -1))


def _shares(t: TileSettings[IntArray], tails: Mapping[str, RemainderTiles]) -> dict[str, Number]:
    """The fractions of loops that conditions leave: by batch axes that are phases, the fraction of
    rows; and the fraction of the reduction's iterations that phases and skipped padding leave."""
    stage = t.stage
    around = t.skips_around
    if not stage.view.guards and not around.any():
        return {STEPS: 1.0}
    several = ((rows > 1).astype(np.int64) for rows in (t.tile_rows, t.tile_rows2))
    steps = (tails[name].guard_step for name in stage.phase_rows)
    asked = (*several, t.unroll_window, around.astype(np.int64), *steps)
    found = map_unique(stage.shares_left, *asked)
    phases = dict.fromkeys(phase for phase, _, _ in stage.phases)
    return dict(zip([*phases, STEPS], found, strict=True))


def _of_a_tile(t: TileSettings[IntArray], at: dict[str, int]) -> Iterator[Level]:
    """The tiles of a block in the chosen order, the loops of the reduction, and what is unrolled
    inside: taps and steps, then rows and vectors."""
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
    yield Level(MAIN, together, role=STEPS, present=unroll > 1)
    yield Level(MAIN, 1, role=STEPS, present=(unroll == 1) | (stage.step_distance > 1))
    written = [
        Level(MAIN, stage.step_distance, False, WRITTEN_OUT, LoopKind.UNROLLED, unroll > 1),
        *(
            Level(at[name], 1, False, WRITTEN_OUT, LoopKind.UNROLLED, whole[name])
            for name in reversed(short)
        ),
    ]
    # Taps along the lanes share vectors: next to each other.
    yield from reversed(written) if stage.lane_step > 1 else written

    for axis in rows:
        yield Level(at[axis.name], 1, role=WRITTEN_OUT, kind=LoopKind.UNROLLED)
    yield Level(COLUMNS, stage.lanes, role=WRITTEN_OUT, kind=LoopKind.UNROLLED)
    yield Level(COLUMNS, 1, role=WRITTEN_OUT, kind=LoopKind.VECTORIZED)


def _dense(t: TileSettings[IntArray], outline: Outline) -> IntArray:
    """(P,) `Plan.dense_mask`."""
    stage = t.stage
    bits = partial(bits_of, outline)
    panels = t.packs * bits(stage.packable) | t.prepacks * bits(stage.prepacked)
    # What was prefetched is where a copy would be: nearby, however far apart its rows are.
    nearby = t.prefetches * bits(stage.nonresident)
    return np.asarray(panels | nearby | t.copies_rows * bits(stage.copyable), np.int64)
