"""Loops end before iterations in which nothing would be done."""

from __future__ import annotations

from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.lowering.lower import clean, plain_nest
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.nest.verify_bounds import unproven_accesses
from tilewright.schedules.nest.verify_nest import verify
from tilewright.schedules.primitives import CacheWrite, Reorder, Split, Unroll, Vectorize
from tilewright.schedules.trace import Trace


def blocks_of_tiles(rows: int, tile: int, tiles: int) -> Trace:
    """Rows in blocks of so many tiles, whose sums are in registers."""
    return Trace((
        Split("s0.d0", tile * tiles), Split("s0.d0i", tile),
        Reorder(("s0.d0io", "s0.r0", "s0.d0ii", "s0.d1")),
        Vectorize("s0.d1"), Unroll("s0.d0ii"), CacheWrite("s0", "s0.d0io", "acc"),
    ))  # fmt: skip


def test_tiles_with_nothing_in_them_are_not_computed() -> None:
    """Seven tiles of two hold thirteen rows. In blocks of seven the last has a row that is not
    there; in blocks of three the last two tiles have none that is."""
    workload = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[13,5]", B="f32[5,4]")
    for tiles, bounds in ((7, []), (3, ["2*s0.d0io + 6*s0.d0o <= 12"])):
        nest = blocks_of_tiles(13, 2, tiles).apply(plain_nest(workload))
        check_meaning(workload, nest)
        cleaned = clean(nest)
        verify(cleaned)
        assert not unproven_accesses(cleaned)
        (tile,) = [loop for loop in loops(cleaned.body) if loop.var == "s0.d0io"]
        assert [str(bound) for bound in tile.bounds] == bounds


def test_a_loop_that_always_has_something_to_do_has_no_bound() -> None:
    workload = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[12,5]", B="f32[5,4]")
    cleaned = clean(blocks_of_tiles(12, 2, 3).apply(plain_nest(workload)))
    serial = [loop for loop in loops(cleaned.body) if loop.kind is LoopKind.SERIAL]
    assert not any(loop.bounds for loop in serial)
