"""The loops of a tile sketch: how large tiles and blocks are, and how often each loop runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...space import Access, FloatArray, IntArray
from ..analysis import Loop, stride
from .roles import TileRoles

if TYPE_CHECKING:
    from .sketch import TileSketch


def tile_sizes(sketch: TileSketch, v: dict[str, IntArray]) -> dict[str, IntArray]:
    """Tile and block sizes for knob values `v`, in elements, and how many of each: arrays (P,)."""
    roles = sketch.roles
    n = roles.columns.extent
    m = [loop.extent for loop in roles.rows] + [1, 1]
    nr = v["vectors"] * sketch.lanes
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
    k, u = roles.main.extent // v["parts"], v["unroll"] if sketch.apart == 1 else 1
    s["kc"] = (((k - 1) // v["k_blocks"] + 1) + u - 1) // u * u
    s["k_count"] = -(-k // s["kc"])
    taps = [loop.extent for loop in sketch.short_taps()]
    s["taps_inside"] = np.cumprod([1, *taps], dtype=np.int64)[v["tap_unroll"]]
    return s


def tile_loop_axes(roles: TileRoles) -> tuple[int, ...]:
    """The axis of each loop: 0 columns, 1 rows, 2 rows2, 3 main, then one for each loop of batch
    and of taps."""
    batch, taps = _batch_and_taps(roles)
    first_tap = 4 + len(batch)
    of_batch = tuple(range(4, first_tap))
    of_taps = tuple(range(first_tap, first_tap + len(taps)))
    return (3, *of_batch, 0, 3, 2, 3, 1, 3, 0, 3, 0, 2, 1, 0, *of_taps, 3, 2, 1, 0)


def _batch_and_taps(roles: TileRoles) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
    """The loops that are walked whole: outside everything, and around the inner reduction."""
    outside = (loop for loop in (*roles.batch, *roles.outer_rows) if loop.extent > 1)
    return tuple(outside), tuple(loop for loop in roles.taps if loop.extent > 1)


def tile_extents(sketch: TileSketch, v: dict[str, IntArray], s: dict[str, IntArray]) -> IntArray:
    """(P, L) trip counts. A loop that knobs place here or there stands in each place, with one
    trip where it is not."""
    roles = sketch.roles
    ones = np.ones_like(s["nr"])
    batch, taps = _batch_and_taps(roles)
    outside, inside = v["rows_outside"] == 1, v["row_tiles_inside"] == 1
    deep = _depth_place(sketch, v)
    blocks = [s["col_blocks"], s["row2_blocks"], s["row_blocks"], s["col_blocks"]]
    kept = [~outside, True, True, outside]
    order: list[IntArray] = []
    for n, (count, here) in enumerate(zip(blocks, kept, strict=True)):
        order += [np.where(here, count, 1), np.where(deep == n, s["k_count"], 1)]
    return np.stack(
        [
            v["parts"],
            *(ones * loop.extent for loop in batch),
            *order,
            np.where(inside, s["col_per"], 1),
            s["row2_per"], s["row_per"],
            np.where(inside, 1, s["col_per"]),
            *(ones * loop.extent for loop in taps),
            np.minimum(s["kc"], roles.main.extent),
            s["mr2"], s["mr"], np.minimum(s["nr"], roles.columns.extent),
        ],
        axis=1,
    )  # fmt: skip


def _depth_place(sketch: TileSketch, v: dict[str, IntArray]) -> IntArray:
    """(P,) behind which of the block loops (columns, rows2, rows, columns again) the blocks of the
    reduction stand: the last that threads divide, or the outermost."""
    if sketch.epilogue:
        return np.full_like(v["parallel"], 3)
    count = len(sketch.roles.rows)
    rows = [2, 1][2 - count :] if count else []
    places = {0: [0, *(3 - r for r in rows)], 1: [*(3 - r for r in rows), 3]}
    divided = np.maximum(v["parallel"], 1) - 1
    found = [np.asarray([*p, 3])[np.minimum(divided, len(p) - 1)] for p in places.values()]
    chosen: IntArray = np.where(v["rows_outside"] == 1, found[1], found[0])
    return chosen


def tile_accesses(sketch: TileSketch) -> tuple[Access, ...]:
    """How the nest touches each tensor over the axes of `tile_loop_axes`."""
    roles, view = sketch.roles, sketch.view
    batch, taps = _batch_and_taps(roles)
    axes = [roles.columns, *roles.rows[:2], *[None] * (2 - len(roles.rows[:2])), roles.main]
    axes += [*batch, *taps]
    found = []
    for read in sketch.operands.every:
        dims = tuple(tuple(stride(index, loop) for loop in axes) for index in read.index)
        found.append(Access(read.tensor, read.dtype.bytes, dims))
    out = [tuple(1 if loop is axis else 0 for axis in axes) for loop in view.spatial]
    found.append(Access(view.name, view.dtype.bytes, tuple(out), is_output=True))
    return tuple(found)


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
