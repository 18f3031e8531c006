"""The loops of a tile stage: how large tiles and blocks are, and how often each loop runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from ...arrays import BoolArray, IntArray, Number, map_unique
from ...nest.loop_ir import LoopKind
from ...plan import Level, Outline, Plan
from ..analysis.stages import StageLoop
from ..outlines import bits_of, stage_outline
from ..writer import BATCHES, BLOCKS, DEPTH, PARTS, STEPS, TILES, WRITTEN_OUT
from .stage import TileStage
from .tails import RemainderTiles, remainder_tiles

Values = dict[str, IntArray]
"""Knob values, or sizes (see `tile_sizes`), by name, each (P,)."""

Size = TypeVar("Size")
"""Of one setting, or of many."""


def tile_sizes(stage: TileStage, v: Values) -> dict[str, IntArray]:
    """Tile and block sizes for knob values `v`, in elements, and how many of each: arrays (P,)."""
    roles = stage.roles
    m = [loop.extent for loop in roles.rows] + [1, 1]
    s = {"nr": v["tile_vectors"] * stage.lanes, "mr": v["tile_rows"], "mr2": v["tile_rows2"]}
    for key, extent, tile, blocks in (
        ("col", roles.columns.extent, s["nr"], v["column_blocks"]),
        ("row", m[0], s["mr"], v["row_blocks"]),
        ("row2", m[1], s["mr2"], v["row_blocks2"]),
    ):
        s[f"{key}_tiles"] = -(-extent // tile)
        s[f"{key}_per"] = -(-s[f"{key}_tiles"] // blocks)
        s[f"{key}_blocks"] = -(-s[f"{key}_tiles"] // s[f"{key}_per"])
    k, u = (
        roles.main.extent // v["split_reduction"],
        v["unroll_reduction"] if stage.step_distance == 1 else 1,
    )
    s["kc"] = ((k - 1) // v["reduction_blocks"] + u) // u * u
    s["k_count"] = -(-k // s["kc"])
    taps = [loop.extent for loop in stage.short_taps()]
    s["taps_inside"] = np.cumprod([1, *taps], dtype=np.int64)[v["unroll_window"]]
    return s


COLUMNS, ROWS, ROWS2, MAIN = range(4)
"""The axes of a tile; behind them, one for each loop of batch, of further rows and of taps."""


def tile_outline(stage: TileStage) -> Outline:
    """The axes of a tile, an axis of one element for rows that it has not, and what it touches."""
    roles = stage.roles
    rows = (*roles.rows, *[None] * (2 - len(roles.rows)))
    loops = (roles.columns, *rows, roles.main, *roles.batch, *roles.outer_rows, *roles.taps)
    return stage_outline(stage.view, loops, stage.operands, epilogue=stage.epilogue)


def tile_axes(stage: TileStage, s: Mapping[str, Size]) -> list[tuple[StageLoop, Size, Size]]:
    """Rows, innermost first, then columns: the loop, the elements of a tile, and tiles a block."""
    tiles = ((s["mr"], s["row_per"]), (s["mr2"], s["row2_per"]), (s["nr"], s["col_per"]))
    loops = (*stage.roles.rows, stage.roles.columns)
    own = (*tiles[: len(loops) - 1], tiles[-1])
    return [(loop, *sizes) for loop, sizes in zip(loops, own, strict=True)]


def tile_plan(
    stage: TileStage, outline: Outline, v: Values, s: Values
) -> tuple[Plan, dict[str, RemainderTiles]]:
    """The levels of knob values `v` with sizes `s`, outermost first, and the tails of rows,
    innermost first, and of columns, by their loops."""
    at = {axis.name: number for number, axis in enumerate(outline.axes)}
    levels = [*_around_tiles(stage, at, v, s), *_of_a_tile(stage, at, v, s)]
    names = [outline.axes[level.axis].name for level in levels]
    tails = remainder_tiles(stage, v, tile_axes(stage, s), _blocks(stage, levels, names, v, s))
    shares = _shares(stage, v, tails)
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
    nontemporal = v["nontemporal_stores"] > 0
    dense = _dense(stage, outline, v)
    return Plan(outline, tuple(levels), len(nontemporal), dense, nontemporal), tails


def _around_tiles(stage: TileStage, at: dict[str, int], v: Values, s: Values) -> Iterator[Level]:
    """Parts of the reduction, batches, and blocks in either order, `parallel` of which threads
    divide with all that is around them; blocks of the reduction stand behind these, or behind the
    first. Each thread gets a run of iterations, so batches that differ in length stand behind the
    blocks that are divided: they alternate."""
    roles, threads = stage.roles, stage.target.threads > 1
    outside, divided = v["row_blocks_outermost"] == 1, v["parallel"]
    split = v["split_reduction"] > 1
    yield Level(
        MAIN, roles.main.extent // v["split_reduction"], threads & split, PARTS, present=split
    )

    *rows, columns = ((loop, tile * per) for loop, tile, per in tile_axes(stage, s))
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
        yield Level(MAIN, s["kc"], role=DEPTH, present=deep)


def copy_places(levels: Sequence[Level], several: BoolArray) -> tuple[IntArray, IntArray]:
    """(P,) the levels that panels, and copies of rows, are made in: those over blocks of columns
    and of rows, or the last of those that threads share, if they do; and the one over blocks of the
    reduction where there are `several`, for rows if it is inside."""
    at, shared = dict[int, IntArray](), np.full(len(several), -1)
    for n, level in enumerate(levels):
        shared = np.where(level.is_parallel, n, shared)
        if level.role in (BLOCKS, DEPTH):
            at[level.axis] = np.where(level.present, n, at.get(level.axis, n))
    columns, rows = (np.maximum(at[n], shared) for n in (COLUMNS, ROWS if ROWS in at else COLUMNS))
    return np.where(several, at[MAIN], columns), np.where(several, np.maximum(rows, at[MAIN]), rows)


def _blocks(
    stage: TileStage, levels: Sequence[Level], names: Sequence[str], v: Values, s: Values
) -> dict[str, tuple[BoolArray, BoolArray]]:
    """By axis, (P,) whether threads divide the blocks along it, and whether there is more in one
    than tiles: loops that threads share with it as one; or copies, which only phases ask about."""
    copied = _last_copies(stage, levels, v, s) if stage.phases else -1
    nothing = np.zeros(len(v["tile_rows"]), np.bool_)
    found = {loop.name: (nothing, nothing) for loop, _, _ in tile_axes(stage, s)}
    for n, (axis, level) in enumerate(zip(names, levels, strict=True)):
        if axis in found and level.role == BLOCKS:
            divided, filled = found[axis]
            filled = filled | level.is_parallel | (level.present & (n <= copied))
            found[axis] = divided | level.is_parallel, filled
    return found


def _last_copies(stage: TileStage, levels: Sequence[Level], v: Values, s: Values) -> IntArray:
    """(P,) the innermost level that copies are made in; -1 where there are none."""
    columns, rows = copy_places(levels, s["k_count"] > 1)
    packs = np.asarray([False, *(bool(stage.packed_inside(ahead)) for ahead in (False, True))])
    copies = np.where(v["copy_rows"] == 1, rows, -1)
    return np.maximum(np.where(packs[v["pack_columns"]], columns, -1), copies)


def _shares(stage: TileStage, v: Values, tails: Mapping[str, RemainderTiles]) -> dict[str, Number]:
    """What conditions leave of loops: by batch axes that are phases, how much of the others' rows
    they have; and, of the steps of a reduction, what phases and padding leave that is tested
    around them."""
    around = (v["skip_padding"] == 1) & (v["copy_rows"] == 1)
    if not stage.view.guards and not around.any():
        return {STEPS: 1.0}
    several = ((v[name] > 1).astype(np.int64) for name in ("tile_rows", "tile_rows2"))
    steps = (tails[name].guard_step for name in stage.phase_rows)
    asked = (*several, v["unroll_window"], around.astype(np.int64), *steps)
    found = map_unique(stage.shares_left, *asked)
    phases = dict.fromkeys(phase for phase, _, _ in stage.phases)
    return dict(zip([*phases, STEPS], found, strict=True))


def _of_a_tile(stage: TileStage, at: dict[str, int], v: Values, s: Values) -> Iterator[Level]:
    """Tiles of a block in the order asked for, steps of the reduction, and what is written out of
    them: taps and steps, then rows and vectors."""
    *rows, (_, width, _) = tile_axes(stage, s)
    inside, unroll = v["row_tiles_innermost"] == 1, v["unroll_reduction"]
    rows.reverse()
    yield Level(COLUMNS, width, role=TILES, present=inside)
    yield from (Level(at[loop.name], tile, role=TILES) for loop, tile, _ in rows)
    yield Level(COLUMNS, width, role=TILES, present=~inside)

    short = [loop.name for loop in stage.short_taps()]
    whole = {name: v["unroll_window"] > n for n, name in enumerate(short)}
    for loop in stage.roles.taps:
        yield Level(at[loop.name], 1, role=STEPS, present=~whole.get(loop.name, unroll < 0))
    together = np.minimum(stage.step_distance * unroll, s["kc"])
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

    for loop, _, _ in rows:
        yield Level(at[loop.name], 1, role=WRITTEN_OUT, kind=LoopKind.UNROLLED)
    yield Level(COLUMNS, stage.lanes, role=WRITTEN_OUT, kind=LoopKind.UNROLLED)
    yield Level(COLUMNS, 1, role=WRITTEN_OUT, kind=LoopKind.VECTORIZED)


def _dense(stage: TileStage, outline: Outline, v: Values) -> IntArray:
    """(P,) which accesses come in order, as the bits of a number, see `Plan.dense`."""
    bits = partial(bits_of, outline)
    packed = (0, bits(stage.packable), bits((*stage.packable, *stage.prepacked)))
    # What was prefetched is where a copy would be: nearby, however far apart its rows are.
    nearby = np.where(v["prefetch"] > 0, bits(stage.nonresident), 0)
    return np.asarray(packed)[v["pack_columns"]] | nearby | v["copy_rows"] * bits(stage.copyable)
