"""Counts of tiles of registers."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from schedules.algebra.scalar import Binary, BinaryOp, Reducer, Select
from schedules.arrays import BoolArray, FloatArray, IntArray
from schedules.plan import Plan
from schedules.sketches.analysis import Read, math_calls, once
from schedules.sketches.hardware import BUSY_CHAINS, FEWEST_ROWS
from schedules.sketches.tile.loops import COLUMNS, ROWS, ROWS2, tile_plan, tile_sizes
from schedules.sketches.tile.sketch import TileSketch
from schedules.sketches.writer import BATCHES, BLOCKS, DEPTH, TILES

from .conflicts import conflict_misses
from .exposed import exposed_lines
from .plans import innermost, runs, shared
from .table import Counts, with_zeros
from .tile_copies import packed
from .tile_loads import step_loads
from .tile_tests import chooses_sums
from .vectors import vectors_along


def tile_counts(sketch: TileSketch, settings: IntArray) -> Counts:
    """See the module."""
    v = sketch.values(settings)
    s = tile_sizes(sketch, v)
    plan = tile_plan(sketch, sketch.outline, v, s)
    f = {key: value.astype(np.float64) for key, value in {**v, **s}.items()}
    view, lanes = sketch.view, sketch.lanes
    *rows, columns = walks = _walks(plan, v, f)
    tiles, blocks = runs(plan, BATCHES, BLOCKS, TILES), runs(plan, DEPTH)
    vectors = np.ceil(columns.computed / lanes)
    full_rows = np.prod([walk.computed / walk.whole for walk in rows], axis=0)
    full_columns = vectors * lanes / columns.whole
    full = full_rows * full_columns
    acc, inside = f["mr"] * f["mr2"] * f["vectors"], f["taps_inside"] * f["unroll"]
    row_loads, column_loads, kept, spread = step_loads(sketch, v)
    skips = (v["skip_padding"] == 1) & (v["copy_rows"] == 0)
    depth = _depth(sketch, v, skips)
    steps = tiles * depth / inside
    ops = _operations(sketch)
    updates = steps * inside * acc * full
    stalled = _stalled_share(sketch, f, rows[0])
    parts = np.where(f["split_k"] > 1, f["split_k"], 0.0)
    again = np.where(blocks > f["split_k"], blocks, 0.0)  # sums that are loaded again
    outputs = np.full_like(tiles, _vectors_out(sketch))
    stores = outputs * (blocks + parts)
    if sketch.epilogue:  # partial sums of blocks wait for it
        sums = rows[0].kept * rows[1].kept * np.ceil(columns.kept / lanes)
        around = prod(loop.extent for loop in (*sketch.roles.batch, *sketch.roles.outer_rows))
        stores = outputs + again * sums * around
    of_epilogue = _of_epilogue(sketch, f)
    added = outputs * (again + parts)
    exposed, prefetches = exposed_lines(sketch, plan, v, s, tiles, steps)
    conversions = (
        row_loads * full_rows * _converts(sketch, sketch.roles.row_reads)
        + column_loads * full_columns * _converts(sketch, sketch.roles.column_reads)
        + full_columns * spread
    )
    vector_ops = updates * ops + steps * conversions + outputs * of_epilogue.operations + added
    # A vector of its own length where less is left than one.
    narrow = columns.cut & (columns.computed % f["nr"] < lanes)
    in_lanes = np.where(narrow, columns.computed / vectors, lanes)
    guarded = (v["copy_rows"] == 0) & ~skips & any(r.padded for r in sketch.roles.column_reads)
    guarded = guarded * steps * column_loads * full_columns
    of_lanes = [sketch.roles.columns.name in cond.index.vars() for cond in sketch.padding]
    # Lanes compare and join masks; what is the same for all of them is a branch.
    choices = guarded * 2.0 * sum(of_lanes) + updates * chooses_sums(sketch, v, s)
    return with_zeros({
        "flops": updates * in_lanes * view.operations
        + (outputs * of_epilogue.flops + added) * in_lanes,
        "vector_ops": vector_ops,
        "lost_ops": vector_ops * stalled + (1.0 + stalled) * choices,
        "chained_ops": (1.0 + stalled) * steps * inside * full,
        "test_ops": guarded * (len(of_lanes) - sum(of_lanes)),
        "vector_loads": steps * (row_loads * full_rows + column_loads * full_columns)
        + outputs * of_epilogue.loads,
        "prefetches": prefetches,
        "vector_stores": stores * (not sketch.is_scattered),
        "scalar_accesses": sketch.is_scattered * (blocks + again) * view.outputs,
        "conflict_misses": conflict_misses(sketch, f, tiles * full * (1.0 + stalled), depth),
        "exposed_lines": exposed,
        "math_calls": outputs * of_epilogue.math_calls,
        "accumulators": acc,
        "live_registers": acc + _operand_registers(sketch, f),
        "kept_values": kept,
        **innermost(plan),
        "code_ops": acc * ops * inside + row_loads + column_loads,
        **packed(sketch, plan, v, s),
        "streamed_bytes": f["stream"] * sketch.workload.tensors[sketch.output].bytes,
        "masked_share": _is_tested(sketch, v, s, walks).astype(np.float64),
        **shared(plan),
    })  # fmt: skip


def _depth(sketch: TileSketch, v: dict[str, IntArray], skips: BoolArray) -> FloatArray:
    """(P,) points of the reduction that are computed for one result, on average."""
    extents = [loop.extent for loop in (sketch.roles.main, *sketch.roles.taps)]
    around = np.where((v["skip_padding"] == 1) & ~skips, sketch.share_around(v), 1.0)
    clear = np.where(skips, sketch.useful_share, 1.0) if sketch.border else 1.0
    return np.asarray(prod(extents) * sketch.guarded_share * around * clear)


class _Walk(NamedTuple):
    """Tiles along one axis in elements of it, (P,): of `whole` tiles, those that are `computed`,
    which is all unless an incomplete tile is `cut`, and has code of its own; and those `kept` in a
    block. Whether incomplete tiles are `tested` in code that all share."""

    whole: FloatArray
    computed: FloatArray
    kept: FloatArray
    cut: BoolArray
    tested: BoolArray


def _walks(plan: Plan, v: dict[str, IntArray], f: dict[str, FloatArray]) -> list[_Walk]:
    """Rows, second rows, columns. `tails` asks for code of its own for an incomplete tile, which it
    gets where blocks of the axis are not what threads divide; where all is one tile, that is what
    there is."""
    return [
        _walk(plan, axis, f[size], v["tails"] >= least, f[f"{key}_per"])
        for axis, key, size, least in (
            (ROWS, "row", "mr", 1), (ROWS2, "row2", "mr2", 1), (COLUMNS, "col", "nr", 2),
        )
    ]  # fmt: skip


def _walk(
    plan: Plan, axis: int, size: FloatArray, asked: BoolArray, tiles_a_block: FloatArray
) -> _Walk:
    divided = np.zeros(plan.settings, np.bool_)
    for level in plan.levels:
        if level.axis == axis and level.role == BLOCKS:
            divided |= level.is_shared
    extent = plan.outline.axes[axis].extent
    tiles = np.ceil(extent / size)
    blocks = np.ceil(tiles / tiles_a_block)
    in_last = extent // size - (blocks - 1) * tiles_a_block  # whole tiles of the last block
    cut = asked & ((blocks == 1) | ~divided) | (tiles == 1)
    whole = tiles * size
    return _Walk(
        whole,
        np.where(cut, float(extent), whole),
        np.where(blocks > 1, whole, extent),
        cut,
        ~cut & ~(asked & (2 * in_last >= tiles_a_block)),
    )


class _Epilogue(NamedTuple):
    """What is done for each vector of results, (P,) or the same for all."""

    operations: float
    flops: float
    math_calls: float
    loads: FloatArray | float


def _of_epilogue(sketch: TileSketch, f: dict[str, FloatArray]) -> _Epilogue:
    """Values that do not move with the rows are loaded once for all rows of a tile."""
    if sketch.epilogue is None:
        return _Epilogue(0.0, 0.0, 0.0, 0.0)
    view, math = sketch.epilogue, float(math_calls(sketch.epilogue.value))
    rows = {loop.name.rsplit(".", 1)[-1] for loop in sketch.roles.rows[:2]}
    loads: FloatArray | float = 0.0
    for read in once(view.reads):
        if read.tensor != sketch.view.name:
            moves = any(read.uses(f"{view.name}.{name}") for name in rows)
            loads = loads + (1.0 if moves else 1.0 / (f["mr"] * f["mr2"]))
    return _Epilogue(view.operations - math, float(view.operations), math, loads)


def _vectors_out(sketch: TileSketch) -> float:
    """Vectors of results, those at the end of a row of columns filled in part."""
    shape, columns = sketch.view.shape, sketch.roles.columns.extent
    elements = prod(shape) if prod(shape) % columns == 0 else sketch.view.outputs
    return elements / columns * vectors_along(columns, sketch.lanes)


def _operand_registers(sketch: TileSketch, f: dict[str, FloatArray]) -> FloatArray:
    """(P,) registers that operands of one step take, while it goes through rows and, for each, the
    vectors of columns: what is met again is kept."""
    roles, total = sketch.roles, np.zeros_like(f["nr"])
    order = [*zip(roles.rows[:2], (f["mr"], f["mr2"]), strict=False)][::-1]
    if sketch.view.operations > 2:  # values between operand and sum, a row's in each step ahead
        total = 1.0 + f["mr"] * f["mr2"] * (f["unroll"] * f["taps_inside"] - 1.0)
    for read in once((*roles.column_reads, *roles.row_reads)):
        kept, again = np.ones_like(total), np.zeros_like(total, np.bool_)
        for loop, size in (*order, (roles.columns, f["vectors"])):
            if read.uses(loop.name):
                kept = kept * np.where(again, size, 1.0)
            else:
                again = again | (size > 1)
        total = total + kept
    return total


def _operations(sketch: TileSketch) -> int:
    """Instructions that an element of a sum takes: one adds a product, if it is of floats."""
    view = sketch.view
    value = view.value.on_true if isinstance(view.value, Select) else view.value
    is_sum = sketch.workload.stage(view.name).reducer is Reducer.SUM and view.dtype.is_float
    is_product = isinstance(value, Binary) and value.op is BinaryOp.MUL
    return view.operations - (is_sum and is_product)


def _converts(sketch: TileSketch, reads: Sequence[Read]) -> bool:
    """Whether elements that are read are converted to another type first."""
    return any(read.dtype is not sketch.view.dtype for read in reads)


def _stalled_share(sketch: TileSketch, f: dict[str, FloatArray], rows: _Walk) -> FloatArray:
    """(P,) by how much longer tiles of few rows take than their instructions: those of a tail wait
    for the latency of their chains as long as enough of them would, and all of them for
    nonresident operands."""
    size = f["mr"]
    rest = rows.computed % size
    enough = np.minimum(np.ceil(BUSY_CHAINS / f["vectors"] / f["mr2"]), size)
    computed = rows.computed + np.where(rest > 0, np.maximum(enough - rest, 0.0), 0.0)
    longer = computed / rows.computed
    if sketch.nonresident:
        tile = size * f["mr2"]
        again = (f["pack_columns"] == 0) & (f["row_tiles"] * f["row2_tiles"] > 1)
        longer = longer * np.where(again, np.maximum(tile, FEWEST_ROWS) / tile, 1.0)
    return np.asarray(longer - 1.0)


def _is_tested(
    sketch: TileSketch, v: dict[str, IntArray], s: dict[str, IntArray], walks: list[_Walk]
) -> BoolArray:
    """(P,) whether work stands under tests: of operands read in place that are padded, or end in
    the middle of a tile of rows or block. Copies have room for whole ones."""
    roles = sketch.roles
    ends = {
        loop.name: (loop.extent % s[size] != 0) & walk.tested
        for loop, size, walk in zip(roles.rows, ("mr", "mr2"), walks, strict=False)
    }
    copied, packs = v["copy_rows"] == 1, v["pack_columns"] > 0
    guarded = ~copied & ~packs & (roles.main.extent % (s["kc"] * v["split_k"]) != 0)
    for read in once((*roles.column_reads, *roles.row_reads)):
        in_place = ~copied if read in sketch.copyable else np.ones_like(copied)
        if read in sketch.packable:
            # Blocks that are transposed in registers may leave the end of a panel as it is.
            in_place = ~packs | (sketch.is_transposed(read) & (s["kc"] % sketch.lanes != 0))
        guarded |= in_place & read.padded & ~(v["skip_padding"] == 1)
        for name, test in ends.items():
            guarded |= in_place & test & read.uses(name)
    return np.asarray(guarded)
