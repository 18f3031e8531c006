"""Counts of tiles of registers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from schedules.arrays import BoolArray, FloatArray, IntArray
from schedules.sketches.analysis import Read, math_calls, once
from schedules.sketches.hardware import BUSY_CHAINS, FEWEST_ROWS
from schedules.sketches.tile.loops import block_counts, block_places, tile_sizes
from schedules.sketches.tile.sketch import TileSketch

from .conflicts import conflict_misses
from .exposed import hints_a_tile, lines_late, loads_a_step
from .table import Counts
from .tile_loads import step_loads
from .vectors import vectors_along


def tile_counts(sketch: TileSketch, settings: IntArray) -> Counts:
    """See the module."""
    v = sketch.values(settings)
    s = tile_sizes(sketch, v)
    f = {key: value.astype(np.float64) for key, value in {**v, **s}.items()}
    roles, view = sketch.roles, sketch.view
    outside = float(prod(loop.extent for loop in roles.outer_rows))
    batch = float(prod(loop.extent for loop in roles.batch)) * outside
    taps = float(prod(loop.extent for loop in roles.taps))
    cuts = _cuts(sketch, v, s)
    tiles = batch * _tile_count(sketch, f, cuts)
    depth: FloatArray | float = float(roles.main.extent) * taps
    acc = f["mr"] * f["mr2"] * f["vectors"]
    ops = max(view.operations - 1, 1)
    inside = f["taps_inside"] * f["unroll"]
    row_loads, column_loads, held, spread = step_loads(sketch, v)
    column_loads = column_loads + loads_a_step(sketch, v, s, f)
    skips = (v["skip_padding"] == 1) & (v["copy_rows"] == 0)
    around = np.where((v["skip_padding"] == 1) & ~skips, sketch.share_around(v), 1.0)
    guarded = (v["copy_rows"] == 0) & ~skips
    extra = np.where(guarded & any(r.padded for r in roles.row_reads), row_loads * 2.0, 0.0)
    if any(r.padded for r in roles.column_reads):
        extra = extra + np.where(guarded, acc * inside * OPS_A_GUARDED_LOAD, 0.0)
    depth = depth * around
    if sketch.border:
        masked = acc * inside * OPS_A_MASKED_UPDATE * _edge_columns(sketch, v) / f["col_tiles"]
        extra = extra + np.where(skips, masked, 0.0)
        depth = depth * np.where(skips, sketch.useful_share, 1.0)
    steps = tiles * depth / inside
    vector_ops = tiles * depth * acc * ops + steps * spread
    waiting = _waiting_share(sketch, f, cuts)
    # Batches are always divided among threads; outer rows are blocks, which `parallel` counts.
    serial = (v["parallel"] == 0) & (batch == outside) | (sketch.target.threads == 1)
    tasks, at_most = _tasks(sketch, v, f, batch / outside, cuts)
    serial |= at_most <= 1
    outputs = _vectors_out(sketch, f)
    sums = outputs * f["k_count"] * f["split_k"] + np.where(
        f["split_k"] > 1, outputs * f["split_k"], 0.0
    )
    of_epilogue = _of_epilogue(sketch, f)
    vector_ops = vector_ops + outputs * of_epilogue.operations
    if sketch.epilogue:
        waiting_sums = _sums_of_blocks(sketch, f) * batch * f["k_count"]
        sums = outputs + np.where(f["k_count"] > 1, waiting_sums, 0.0)
    return {
        "flops": vector_ops * sketch.lanes * 2.0,
        "vector_ops": vector_ops,
        "lost_ops": vector_ops * waiting + steps * (1.0 + waiting) * extra,
        "vector_loads": steps * (row_loads + column_loads)
        + tiles * hints_a_tile(sketch, v, f)
        + outputs * of_epilogue.loads,
        "vector_stores": np.zeros_like(tiles) if sketch.is_scattered else sums,
        "scalar_accesses": _scattered(sketch, f) + np.zeros_like(tiles),
        "conflict_misses": conflict_misses(sketch, f, tiles * (1.0 + waiting), depth),
        "exposed_lines": lines_late(sketch, v, s, f, batch / outside, batch),
        "math_calls": outputs * of_epilogue.math_calls,
        "accumulators": acc,
        "live_registers": acc
        + len(once(roles.column_reads)) * f["vectors"]
        + _between_steps(f, ops)
        + 1.0,
        "held_values": held,
        "inner_trips": np.ceil(f["kc"] / f["unroll"]),
        "inner_entries": tiles * taps / f["taps_inside"] * f["k_count"] * f["split_k"],
        "code_ops": (acc * ops * inside + row_loads + column_loads) * _copies(sketch, v),
        **_packed(sketch, f, outside, batch),
        "streamed_bytes": f["stream"] * sketch.workload.tensors[sketch.output].bytes,
        "masked_share": _masked_share(sketch, v, s, cuts),
        "tasks": np.where(serial, 1.0, tasks),
        "regions": np.where(serial, 0.0, 1.0),
    }


def _sums_of_blocks(sketch: TileSketch, f: dict[str, FloatArray]) -> FloatArray:
    """(P,) vectors of sums of one batch that wait in a block for the epilogue: whole tiles, or what
    there is where a block is all of an axis."""
    m = [loop.extent for loop in sketch.roles.rows] + [1, 1]
    rows = np.where(f["row_blocks"] > 1, f["row_tiles"] * f["mr"], m[0])
    rows2 = np.where(f["row2_blocks"] > 1, f["row2_tiles"] * f["mr2"], m[1])
    exact = float(vectors_along(sketch.roles.columns.extent, sketch.lanes))
    columns = np.where(f["col_blocks"] > 1, f["col_tiles"] * f["vectors"], exact)
    return np.asarray(rows * rows2 * columns)


class _Epilogue(NamedTuple):
    """What is done for each vector of results, (P,) or the same for all."""

    operations: float
    math_calls: float
    loads: FloatArray | float


def _of_epilogue(sketch: TileSketch, f: dict[str, FloatArray]) -> _Epilogue:
    """Values that do not move with the rows are loaded once for all rows of a tile."""
    if sketch.epilogue is None:
        return _Epilogue(0.0, 0.0, 0.0)
    view, math = sketch.epilogue, float(math_calls(sketch.epilogue.value))
    rows = {loop.name.rsplit(".", 1)[-1] for loop in sketch.roles.rows[:2]}
    loads: FloatArray | float = 0.0
    for read in once(view.reads):
        if read.tensor != sketch.view.name:
            moves = any(read.uses(f"{view.name}.{name}") for name in rows)
            loads = loads + (1.0 if moves else 1.0 / (f["mr"] * f["mr2"]))
    return _Epilogue(float(view.operations) - math, math, loads)


def _vectors_out(sketch: TileSketch, f: dict[str, FloatArray]) -> FloatArray:
    """(P,) vectors of results, those at the end of a row of columns filled in part."""
    shape, columns = sketch.view.shape, sketch.roles.columns.extent
    elements = prod(shape) if prod(shape) % columns == 0 else sketch.view.outputs
    return np.full_like(f["nr"], elements / columns * -(-columns // sketch.lanes))


def _between_steps(f: dict[str, FloatArray], ops: int) -> FloatArray:
    """(P,) registers for values between operand and sum, where an element is more than a product:
    those of a row are computed ahead in each step that is written out."""
    ahead = f["mr"] * f["mr2"] * (f["unroll"] * f["taps_inside"] - 1.0)
    return np.asarray(np.where(ops > 1, 1.0 + ahead, 0.0))


OPS_A_GUARDED_LOAD = 6.0
"""Comparing, choosing an address and loading once more what neighbours cannot share."""

OPS_A_MASKED_UPDATE = 1.0
"""Masking a load and the sum it goes to, at the edges of the columns."""


def _copies(sketch: TileSketch, v: dict[str, IntArray]) -> FloatArray | float:
    """(P,) how often the innermost body is written: once, and for each tile at an edge."""
    if not sketch.border:
        return 1.0
    copies = (1.0 + sketch.edge_tiles(v["rows"])) * (1.0 + _edge_columns(sketch, v))
    return np.where((v["skip_padding"] == 1) & (v["copy_rows"] == 0), copies, 1.0)


def _edge_columns(sketch: TileSketch, v: dict[str, IntArray]) -> IntArray:
    """(P,) tiles of columns whose lanes are masked where they touch padding."""
    assert sketch.border is not None
    return sketch.edge_columns(v["vectors"])


def _scattered(sketch: TileSketch, f: dict[str, FloatArray]) -> FloatArray | float:
    """(P,) elements written one by one, as often as partial sums are."""
    return f["k_count"] * sketch.view.outputs if sketch.is_scattered else 0.0


def _cuts(
    sketch: TileSketch, v: dict[str, IntArray], s: dict[str, IntArray]
) -> tuple[BoolArray, BoolArray, BoolArray]:
    """(P,) whether an incomplete tile of rows, of the second rows and of columns has code of its
    own: `tails` asks for it, and blocks of the axis are not what threads divide, or most tiles of
    the last one are whole."""
    places = block_places(sketch.roles, v)
    names = [loop.name for loop in sketch.roles.rows[:2]]
    names = [*names, *[""] * (2 - len(names)), sketch.roles.columns.name]
    divided = v["parallel"] if sketch.target.threads > 1 else np.zeros_like(v["parallel"])
    found = []
    extents = [*(loop.extent for loop in sketch.roles.rows[:2]), 1, 1][:2]
    extents.append(sketch.roles.columns.extent)
    for n, (key, least) in enumerate((("row", 1), ("row2", 1), ("col", 2))):
        place = places.get(names[n], np.full_like(divided, len(places)))
        per, blocks = s[f"{key}_per"], s[f"{key}_blocks"]
        whole = extents[n] // s[("mr", "mr2", "nr")[n]] - (blocks - 1) * per
        cut = (blocks == 1) | (place >= divided) | (2 * whole >= per)
        found.append((v["tails"] >= least) & cut)
    return found[0], found[1], found[2]


def _tile_count(
    sketch: TileSketch, f: dict[str, FloatArray], cuts: tuple[BoolArray, BoolArray, BoolArray]
) -> FloatArray:
    """Register tiles in one batch; fractions where an incomplete tile has code of its own."""
    roles = sketch.roles
    m = [loop.extent for loop in roles.rows] + [1, 1]
    rows = np.where(cuts[0], m[0] / f["mr"], f["row_tiles"])
    rows2 = np.where(cuts[1], m[1] / f["mr2"], f["row2_tiles"])
    exact = np.ceil(roles.columns.extent / sketch.lanes) / f["vectors"]
    return np.asarray(np.where(cuts[2], exact, f["col_tiles"]) * rows * rows2)


def _waiting_share(
    sketch: TileSketch, f: dict[str, FloatArray], cuts: tuple[BoolArray, BoolArray, BoolArray]
) -> FloatArray:
    """(P,) by how much longer tiles of few rows take than their instructions: those of a tail wait
    for the latency of their chains as long as enough of them would, and all of them for operands
    that pass by."""
    m = [loop.extent for loop in sketch.roles.rows] + [1, 1]
    enough = np.ceil(BUSY_CHAINS / f["vectors"] / f["mr2"])
    if sketch.passing:
        enough = np.where(f["pack_columns"] == 0, np.maximum(enough, FEWEST_ROWS), enough)
    rest = np.where(m[0] % f["mr"] > 0, np.maximum(m[0] % f["mr"], np.minimum(enough, f["mr"])), 0)
    rows = np.where(cuts[0], m[0] / f["mr"], f["row_tiles"])
    longer = np.where(cuts[0], m[0] // f["mr"] + rest / f["mr"], f["row_tiles"])
    if sketch.passing:
        tile = f["mr"] * f["mr2"]
        again = (f["pack_columns"] == 0) & (f["row_tiles"] * f["row2_tiles"] > 1)
        longer = longer * np.where(again, np.maximum(tile, FEWEST_ROWS) / tile, 1.0)
    return np.asarray(longer / rows - 1.0)


def _packed(sketch: TileSketch, f: dict[str, FloatArray], outside: float, batch: float) -> Counts:
    """What is written to private copies, and how."""
    columns, largest = _panels(sketch, f, outside, batch)
    rows, tested, single = (np.zeros_like(columns) for _ in range(3))
    for read in sketch.operands.copyable:
        reaches = _block_reaches(sketch, read, f)
        block = np.prod(reaches, axis=0) * read.dtype.bytes * (f["copy_rows"] == 1)
        copied = block * _row_copies(sketch, read, f, batch)
        rows = rows + copied
        tested = tested + (copied if read.padded else 0.0)
        single = single + copied * ((reaches[-1] == 1) & (read.shape[-1] > 1))
        largest = np.maximum(largest, block)
    column = sketch.roles.columns.name
    strided = [r for r in sketch.operands.packable if r.element_stride(column) not in (0, 1)]
    gathered = any(not sketch.operands.is_turned(r) for r in strided)
    nothing = np.zeros_like(columns)
    return {
        "packed_bytes": columns + rows,
        "strided_packed_bytes": (columns if gathered else nothing) + single,
        "turned_packed_bytes": columns if strided and not gathered else nothing,
        "passing_packed_bytes": columns * (f["pack_on_the_way"] > 0),
        "tested_packed_bytes": tested,
        "panel_bytes": largest,
    }


def _panels(
    sketch: TileSketch, f: dict[str, FloatArray], outside: float, batch: float
) -> tuple[FloatArray, FloatArray]:
    """(P,) bytes of packed panels of columns in all, and of the largest: whole blocks, whatever
    the last one has."""
    roles = sketch.roles
    taps = float(prod(loop.extent for loop in roles.taps))
    block = taps * f["kc"] * f["nr"] * f["col_per"]
    sizes = [[r.dtype.bytes for r in sketch.operands.packed_inside(a)] for a in (False, True)]
    ahead = f["pack_columns"] == 2
    in_all, most = (np.where(ahead, of(sizes[1]), of(sizes[0])) for of in (sum, _largest))
    inside_rows = outside * f["row_blocks"] * f["row2_blocks"]
    # Tasks of the two outermost block loops pack on their own; what is inside them shares.
    of_tasks = np.where(f["parallel"] == 2, np.ceil(block_counts(roles, f)[1]), 1.0)
    of_blocks = sketch.epilogue is not None and f["k_count"] > 1  # what an epilogue waits for
    again = np.where((f["rows_outside"] == 1) | of_blocks, inside_rows, of_tasks)
    times = again * f["k_count"] * f["split_k"] * f["col_blocks"] * batch / outside
    packs = f["pack_columns"] > 0
    # Blocks of the reduction stand around blocks of columns that are inside of rows.
    chosen = {"rows_outside": f["rows_outside"].astype(np.int64)}
    place = block_places(roles, chosen)[roles.columns.name]
    around = (f["rows_outside"] == 1) & (place >= np.maximum(f["parallel"], 1))
    around &= f["k_count"] > 1
    one = block * most * np.where(around, f["col_blocks"], 1.0)
    return np.where(packs, times * block * in_all, 0.0), np.where(packs, one, 0.0)


def _largest(sizes: Sequence[int]) -> int:
    return max(sizes, default=0)


def _block_reaches(sketch: TileSketch, read: Read, f: dict[str, FloatArray]) -> list[FloatArray]:
    """For each dimension of an operand that moves with the rows, (P,) the elements of a copy of a
    block: whole also where the last one is not, and none that a stride leaves out."""
    roles = sketch.roles
    blocks = [(roles.columns, f["nr"] * f["col_per"]), (roles.main, f["kc"])]
    sizes = (f["mr"] * f["row_per"], f["mr2"] * f["row2_per"])
    blocks += [*zip(roles.rows, sizes, strict=False)]
    blocks += [(loop, np.full_like(f["nr"], loop.extent)) for loop in roles.taps]
    reaches = []
    for index in read.index:
        reach = places = np.ones_like(f["nr"])
        for loop, size in blocks:
            step = abs(index.coefficient(loop.name))
            if step:
                reach = reach + step * (size - 1)
                places = places * size
        reaches.append(np.minimum(reach, places))
    return reaches


def _row_copies(
    sketch: TileSketch, read: Read, f: dict[str, FloatArray], batch: float
) -> FloatArray:
    """(P,) how many such blocks are copied: once for each block of columns unless rows are
    outside."""
    roles = sketch.roles
    copies = batch * f["row_blocks"] * f["row2_blocks"] * f["k_count"] * f["split_k"]
    again = (f["rows_outside"] == 0) | read.uses(roles.columns.name)
    # Tasks made of both blocks of rows and of columns copy each on their own.
    again |= f["parallel"] > len(roles.rows) + len(roles.outer_rows)
    return np.asarray(copies * np.where(again, f["col_blocks"], 1.0))


def _tasks(
    sketch: TileSketch,
    v: dict[str, IntArray],
    f: dict[str, FloatArray],
    batch: float,
    cuts: tuple[BoolArray, BoolArray, BoolArray],
) -> tuple[FloatArray, FloatArray]:
    """(P,) iterations of the parallel loop, those of fewer tiles counted as the part they are; and
    each as one."""
    tasks = np.full_like(f["nr"], batch) * f["split_k"]
    whole = tasks
    for n, count in enumerate(block_counts(sketch.roles, f)):
        tasks = tasks * np.where(v["parallel"] > n, count, 1.0)
        whole = whole * np.where(v["parallel"] > n, np.ceil(count), 1.0)
    return tasks, whole


def _masked_share(
    sketch: TileSketch,
    v: dict[str, IntArray],
    s: dict[str, IntArray],
    cuts: tuple[BoolArray, BoolArray, BoolArray],
) -> FloatArray:
    """(P,) how much of the inner work stands under guards: all of it where operands that are read
    in place are guarded in the reduction itself. Copies have room for whole tiles."""
    m = [loop.extent for loop in sketch.roles.rows] + [1, 1]
    rows = ((m[0] % s["mr"] != 0) & ~cuts[0]) | ((m[1] % s["mr2"] != 0) & ~cuts[1])
    copied = sketch.operands.copyable
    rows &= (v["copy_rows"] == 0) | (len(copied) < len(once(sketch.roles.row_reads)))
    columns = (sketch.roles.columns.extent % s["nr"] != 0) & ~cuts[2]
    unpacked = v["pack_columns"] == 0
    deep = unpacked & (sketch.roles.main.extent % s["kc"] != 0)
    share = MASKED_COLUMNS_SHARE * (columns & unpacked)
    # Which rows there are is settled ahead of a single loop over all of the reduction (509x512x512
    # and 127x131x137: no difference), not so with blocks of it (1000x1000x1000: 1.3 to 1.8 times).
    branches = deep | (rows & ((s["k_count"] > 1) | bool(sketch.roles.taps)))
    return np.where(branches | _tested_rows(sketch, v, s), 1.0, share).astype(np.float64)


def _tested_rows(sketch: TileSketch, v: dict[str, IntArray], s: dict[str, IntArray]) -> BoolArray:
    """(P,) whether padding along the second rows is left out by tests in each step: a tile has
    several of them, their taps are not written out, and the rows that may touch padding (those at
    the edges where one tile has all) are too many for the tests to be moved ahead of the steps."""
    skips = (v["skip_padding"] == 1) & (v["copy_rows"] == 0) & (v["rows2"] > 1)
    if len(sketch.roles.rows) < 2 or sketch.view.presolve or not skips.any():
        return np.zeros_like(skips)  # phases have tests of their own, which count for more
    taps, second = [loop.name for loop in sketch.short_taps()], sketch.roles.rows[1]
    written_out = [frozenset(taps[:n]) for n in range(len(taps) + 1)]
    border = sketch.outer_border
    values = np.asarray([border.tested_values(second.name, names) for names in written_out])
    tested = values[v["tap_unroll"]]
    unknown = (s["row2_tiles"] > 1) & (tested > 0) & (tested < second.extent)
    tested = np.where(unknown, np.minimum(v["rows2"], second.extent), tested)
    # Where a step writes the whole loop out, nothing is left that tests could be moved ahead of.
    moved = (tested <= MOST_TESTS_MOVED) & (v["unroll"] < sketch.roles.main.extent)
    found: BoolArray = skips & (tested > 0) & ~moved
    return found


MOST_TESTS_MOVED = 3
"""Rows whose tests do not change in the innermost loop and cost nothing: LLVM tells them apart
ahead of it. Capsules on Zen 5, 8 rows with 2 at the edges, or 3 in each of several tiles: no
difference, 24 accumulators at 0.99 of the bound; 5 rows of a dilated 7x7, 2 at the edges: 270 us,
470 where taps with padding are written out; 7 of 14 rows in each tile, those too: a tenth."""

MASKED_COLUMNS_SHARE = 0.1
"""What lanes that are masked in every step cost, as a share of what branches around rows do."""
