"""The loops of a tile stage: how large tiles and blocks are, and how often each loop runs."""

from __future__ import annotations

import numpy as np

from ...arrays import FloatArray, IntArray
from ...plan import Level, Outline, Plan
from ..analysis import Loop
from ..outlines import stage_outline
from .roles import TileRoles
from .stage import TileStage


def tile_sizes(stage: TileStage, v: dict[str, IntArray]) -> dict[str, IntArray]:
    """Tile and block sizes for knob values `v`, in elements, and how many of each: arrays (P,)."""
    roles = stage.roles
    n = roles.columns.extent
    m = [loop.extent for loop in roles.rows] + [1, 1]
    nr = v["vectors"] * stage.lanes
    s: dict[str, IntArray] = {"nr": nr, "mr": v["rows"], "mr2": v["rows2"]}
    s["col_tiles"] = -(-n // nr)
    s["col_per"] = -(-s["col_tiles"] // v["column_blocks"])
    s["col_blocks"] = -(-s["col_tiles"] // s["col_per"])
    for key, extent, tile, blocks in (
        ("row", m[0], v["rows"], v["row_blocks"]),
        ("row2", m[1], v["rows2"], v["row2_blocks"]),
    ):
        s[f"{key}_tiles"] = -(-extent // tile)
        s[f"{key}_per"] = -(-s[f"{key}_tiles"] // blocks)
        s[f"{key}_blocks"] = -(-s[f"{key}_tiles"] // s[f"{key}_per"])
    k, u = roles.main.extent // v["split_k"], v["unroll"] if stage.apart == 1 else 1
    s["kc"] = (((k - 1) // v["k_blocks"] + 1) + u - 1) // u * u
    s["k_count"] = -(-k // s["kc"])
    taps = [loop.extent for loop in stage.short_taps()]
    s["taps_inside"] = np.cumprod([1, *taps], dtype=np.int64)[v["tap_unroll"]]
    return s


def block_places(roles: TileRoles, v: dict[str, IntArray]) -> dict[str, IntArray]:
    """(P,) for each axis with a loop over blocks, how many such loops are around it."""
    orders = [roles.block_loops(outside) for outside in (False, True)]
    places = {name: np.asarray([order.index(name) for order in orders]) for name in orders[0]}
    return {name: place[v["rows_outside"]] for name, place in places.items()}


def _batch_and_taps(roles: TileRoles) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """The loops that are walked whole: outside everything, and around the inner reduction."""
    outside = (loop for loop in (*roles.batch, *roles.outer_rows) if loop.extent > 1)
    return tuple(outside), tuple(loop for loop in roles.taps if loop.extent > 1)


COLUMNS, ROWS, ROWS2, MAIN = range(4)
"""The axes of a tile; behind them, one for each loop of batch and of taps."""


def tile_outline(stage: TileStage) -> Outline:
    """The axes of a tile, an axis of one element for rows that it has not, and what it touches."""
    roles, view = stage.roles, stage.view
    batch, taps = _batch_and_taps(roles)
    rows = (*roles.rows[:2], *[None] * (2 - len(roles.rows[:2])))
    loops = (roles.columns, *rows, roles.main, *batch, *taps)
    return stage_outline(view, loops, stage.operands.every)


def tile_plan(
    stage: TileStage, outline: Outline, v: dict[str, IntArray], s: dict[str, IntArray]
) -> Plan:
    """The levels of knob values `v` with sizes `s`. A loop that knobs place here or there is a
    level in each place, of one iteration where it is not."""
    roles, threads = stage.roles, stage.target.threads > 1
    batch, taps = _batch_and_taps(roles)
    first_tap = 4 + len(batch)
    k = roles.main.extent // v["split_k"]
    block, block2 = s["mr"] * s["row_per"], s["mr2"] * s["row2_per"]
    wide, n = s["nr"] * s["col_per"], roles.columns.extent
    outside, inside = v["rows_outside"] == 1, v["row_tiles_inside"] == 1
    deep = _depth_place(stage, v)
    place = block_places(roles, v)
    names = [loop.name for loop in (*roles.rows[:2], *[roles.columns] * 2)][:2]
    rows, rows2 = (threads & (v["parallel"] > place[name]) for name in names)
    columns = threads & (v["parallel"] > place[roles.columns.name])
    outer = {loop.name for loop in roles.outer_rows}

    def depth(place: int) -> Level:
        return Level(MAIN, np.where(deep <= place, s["kc"], k), note="blocks of the reduction")

    levels = (
        Level(MAIN, k, threads, "parts of the reduction"),
        *(
            Level(4 + n, 1, threads & (x.name not in outer or v["parallel"] > place[x.name]))
            for n, x in enumerate(batch)
        ),
        Level(COLUMNS, np.where(outside, n, wide), ~outside & columns, "blocks of columns"),
        depth(0),
        Level(ROWS2, block2, rows2, "blocks of rows"),
        depth(1),
        Level(ROWS, block, rows, "blocks of rows"),
        depth(2),
        Level(COLUMNS, wide, outside & columns, "blocks of columns"),
        depth(3),
        Level(COLUMNS, np.where(inside, s["nr"], wide), note="tiles of columns"),
        Level(ROWS2, s["mr2"], note="tiles of rows"),
        Level(ROWS, s["mr"], note="tiles of rows"),
        Level(COLUMNS, s["nr"], note="tiles of columns"),
        *(Level(n, 1, note="taps") for n in range(first_tap, first_tap + len(taps))),
        Level(MAIN, 1, note="reduction"),
        Level(ROWS2, 1, note="rows in registers"),
        Level(ROWS, 1, note="rows in registers"),
        Level(COLUMNS, 1, note="columns in registers"),
    )
    return Plan(outline, levels, len(deep), _dense(stage, v))


def _depth_place(stage: TileStage, v: dict[str, IntArray]) -> IntArray:
    """(P,) behind which of the block loops (columns, rows2, rows, columns again) the blocks of the
    reduction stand: the last that threads divide, or the outermost."""
    if stage.epilogue:
        return np.full_like(v["parallel"], 3)
    count = len(stage.roles.rows)
    rows = [2, 1][2 - count :] if count else []
    places = {0: [0, *(3 - r for r in rows)], 1: [*(3 - r for r in rows), 3]}
    divided = np.maximum(v["parallel"], 1) - 1
    found = [np.asarray([*p, 3])[np.minimum(divided, len(p) - 1)] for p in places.values()]
    chosen: IntArray = np.where(v["rows_outside"] == 1, found[1], found[0])
    return chosen


def block_counts(roles: TileRoles, f: dict[str, FloatArray]) -> list[FloatArray]:
    """How many iterations the first and the second block loop have; a last one of fewer tiles
    counts as the part it is."""
    ones = np.ones_like(f["nr"])
    by_name = {loop.name: ones * loop.extent for loop in roles.outer_rows}
    by_name |= {
        loop.name: f[f"{key}_tiles"] / f[f"{key}_per"]
        for loop, key in zip(roles.rows, ("row", "row2"), strict=False)
    }
    by_name[roles.columns.name] = f["col_tiles"] / f["col_per"]
    orders = [[by_name[n] for n in roles.block_loops(outside)] for outside in (False, True)]
    picked = []
    for n in range(2):
        a, b = (order[n] if n < len(order) else ones for order in orders)
        picked.append(np.where(f["rows_outside"] == 1, b, a))
    return picked


def _dense(stage: TileStage, v: dict[str, IntArray]) -> IntArray:
    """(P,) which accesses come in order, as the bits of a number, see `Plan.dense`."""
    bits = {read.tensor: 1 << b for b, read in enumerate(stage.operands.every)}
    columns = sum(bits[read.tensor] for read in stage.operands.packable)
    rows = sum(bits[read.tensor] for read in stage.operands.copyable)
    ahead = columns | sum(bits[read.tensor] for read in stage.operands.packed_ahead)
    packed = np.asarray([0, columns, ahead])[v["pack_columns"]]
    # What hints have brought is where a copy would be: nearby, however far apart its rows are.
    fetched = sum(bits[read.tensor] for read in stage.passing)
    packed = packed | np.where(v["prefetch"] > 0, fetched, 0)
    return np.asarray(packed | (v["copy_rows"] * rows))
