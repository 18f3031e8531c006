"""What tiles write to private copies: panels of columns, and blocks of rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

import numpy as np

from tilewright.schedules.arrays import BoolArray, FloatArray
from tilewright.schedules.plan import Access, Plan
from tilewright.schedules.sketches.analysis import StageRead
from tilewright.schedules.sketches.tile.loops import Values, copy_places
from tilewright.schedules.sketches.tile.sketch import TileSketch

from .plans import copied
from .table import Counts


def packed(sketch: TileSketch, plan: Plan, v: Values, s: Values) -> Counts:
    """Their bytes: in all, how they are made, and of the largest."""
    columns, rows = copy_places(plan.levels, s["k_count"] > 1)
    access_of = {access.buffer: access for access in plan.accesses}
    in_panels, in_rows, single, largest = (np.zeros(plan.num_settings) for _ in range(4))
    for read in sketch.packable if v["pack_columns"].any() else ():
        sides, times = copied(plan, access_of[read.tensor], columns)
        # Those of constants may be there before the call.
        there = (v["pack_columns"] == 1) | (v["pack_columns"] == 2) & (read not in sketch.prepacked)
        block = there * np.prod(sides, axis=0) * read.dtype.bytes
        in_panels = in_panels + block * times
        largest = np.maximum(largest, block)
    for read in sketch.copyable if v["copy_rows"].any() else ():
        access = access_of[read.tensor]
        sides, times = copied(plan, access, rows)
        block = v["copy_rows"] * np.prod(sides, axis=0) * read.dtype.bytes
        in_rows = in_rows + block * times
        single = single + block * times * _is_piecemeal(read, access, sides)
        largest = np.maximum(largest, block)
    column = sketch.roles.columns.name
    strided = [r for r in sketch.packable if r.element_stride(column) not in (0, 1)]
    gathered = any(not sketch.is_transposed(r) for r in strided)
    return {
        "packed_bytes": in_panels + in_rows,
        "strided_packed_bytes": in_panels * gathered + single,
        "transposed_packed_bytes": in_panels * (bool(strided) and not gathered),
        "fused_packed_bytes": in_panels * (v["fuse_packing"] > 0),
        "panel_bytes": largest,
    }


def _is_piecemeal(read: StageRead, access: Access, sides: Sequence[FloatArray]) -> BoolArray:
    """(P,) whether elements that a copy has side by side are apart in the tensor."""
    found, only = np.zeros(sides[0].shape, np.bool_), np.ones(sides[0].shape, np.bool_)
    for dim in reversed(range(len(sides))):
        is_apart = prod(read.shape[dim + 1 :]) > 1 or gcd(*access.strides[dim]) > 1
        found |= only & (sides[dim] > 1) & is_apart
        only &= sides[dim] == 1
    return found | only
