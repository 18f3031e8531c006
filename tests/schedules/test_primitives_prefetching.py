"""Prefetch: what a later tile reads, dealt over the tiles that read the same. PrefetchStores: what
a tile stores."""

from __future__ import annotations

import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.workloads import applied, matmul, notation
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.nest import loop_ir
from tilewright.schedules.nest.loop_ir import Nest, leaves
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    Partition,
    Prefetch,
    PrefetchStores,
    Primitive,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from tilewright.schedules.trace import Trace

TILES: tuple[Primitive, ...] = (
    Split("s0.d1", 8), Split("s0.d1i", 4), Split("s0.d0", 2),
    Reorder(("s0.d1o", "s0.d0o", "s0.r0", "s0.d0i", "s0.d1io", "s0.d1ii")),
    Vectorize("s0.d1ii"), Unroll("s0.d1io"), Unroll("s0.d0i"),
)  # fmt: skip


def with_prefetches(*steps: Primitive) -> Nest:
    return Trace((*TILES, *steps)).apply(plain_nest(matmul(6, 24, 5)))


def test_prefetches_for_the_next_tile_are_dealt_over_the_rows(golden: Golden) -> None:
    nest = with_prefetches(Prefetch("i1", "s0.d1o", 1, "s0.r0", "s0.d0o", 4))
    assert to_text(nest) == golden


def test_each_iteration_can_give_all_prefetches() -> None:
    nest = with_prefetches(Prefetch("i1", "s0.d1o", 2, "s0.r0", "", 4))
    prefetches = [leaf for leaf in leaves(nest.body) if isinstance(leaf, loop_ir.PrefetchHint)]
    columns = ["8*((s0.d1o + 2)%3)", "(8*s0.d1o + 20)%24"]  # behind the last, the first again
    assert [str(prefetch.index[1]) for prefetch in prefetches] == columns
    assert all(prefetch.far for prefetch in prefetches)


def test_a_row_operand_gets_a_hint_for_each_row() -> None:
    nest = with_prefetches(Prefetch("i0", "s0.r0", 3, "s0.r0", "", 16))
    prefetches = [leaf for leaf in leaves(nest.body) if isinstance(leaf, loop_ir.PrefetchHint)]
    assert [tuple(map(str, prefetch.index)) for prefetch in prefetches] == [
        ("2*s0.d0o", "s0.r0 + 3"), ("2*s0.d0o + 1", "s0.r0 + 3"),
    ]  # fmt: skip


def test_prefetches_behind_the_last_tile_are_for_the_first() -> None:
    """A prefetch for memory that is not there costs a walk through the page table every time."""
    nest = with_prefetches(Prefetch("i0", "s0.d0o", 1, "s0.r0", "", 16))
    prefetches = [leaf for leaf in leaves(nest.body) if isinstance(leaf, loop_ir.PrefetchHint)]
    assert [str(prefetch.index[0]) for prefetch in prefetches] == [
        "2*((s0.d0o + 1)%3)",
        "(2*s0.d0o + 3)%6",
    ]
    cut = with_prefetches(Prefetch("i1", "s0.d1o", 1, "s0.r0", "", 8), Partition("s0.d1o", 2))
    places = {
        str(leaf.index[1]) for leaf in leaves(cut.body) if isinstance(leaf, loop_ir.PrefetchHint)
    }
    assert places == {"8*((s0.d1o + 1)%3)", "8*(s0.d1o.t%3)"}


@pytest.mark.parametrize("sizes", [(6, 24, 5), (7, 27, 5), (3, 9, 2), (13, 17, 3)])
def test_prefetches_change_nothing_that_is_computed(sizes: tuple[int, int, int]) -> None:
    applied(matmul(*sizes), *TILES, Prefetch("i1", "s0.d1o", 1, "s0.r0", "s0.d0o", 4))


def test_a_prefetch_says_why_not() -> None:
    def refused(step: Primitive, match: str, *before: Primitive) -> None:
        nest = with_prefetches(*before)
        with pytest.raises(ScheduleError, match=match):
            step.apply(nest)

    refused(Prefetch("i1", "s0.d0i", 1, "s0.r0", "", 4), "must be in 's0.d0i'")
    refused(Prefetch("i1", "s0.d0o", 1, "s0.r0", "s0.d1o", 4), "must be between the other two")
    refused(Prefetch("s0", "s0.d1o", 1, "s0.r0", "", 4), "must read 's0'")
    refused(Prefetch("i1", "s0.d1o", 0, "s0.r0", "", 4), "ahead and step be 1")
    refused(
        Prefetch("i0", "s0.d1o", 1, "s0.r0", "s0.d0o", 4), "the index of 'i0' depends on 's0.d0o'"
    )
    refused(Prefetch("i1", "s0.d1o", 1, "s0.d0o", "", 1), "more than 32 prefetches")
    refused(Prefetch("p", "s0.d1o", 1, "s0.r0", "", 4), "'p' is allocated inside 's0.r0'",
            CacheRead("i1", "s0.r0", "p"))  # fmt: skip
    refused(Prefetch("i1", "s0.d1o", 1, "s0.d1ii", "", 4), "nothing can be inserted")


def test_windows_that_overlap_are_asked_for_once() -> None:
    row = notation("Y[w,o] += X[2*w+s,c] * W[s,c,o]", X="f32[17,3]", W="f32[3,3,4]")
    steps = (
        Split("s0.d0", 4), Reorder(("s0.d0o", "s0.r1", "s0.r0", "s0.d0i", "s0.d1")),
        Prefetch("i0", "s0.d0o", 1, "s0.r1", "", 16),
    )  # fmt: skip
    prefetches = [
        leaf for leaf in leaves(applied(row, *steps).body) if isinstance(leaf, loop_ir.PrefetchHint)
    ]
    assert len(prefetches) == len({prefetch.index for prefetch in prefetches}) == 2 * 3 + 3


def test_places_too_many_for_an_iteration_are_dealt_over_the_rows() -> None:
    turned = notation("C[b,i,j] += A[b,i,k] * B[b,j,k]", A="f32[3,14,5]", B="f32[3,40,5]")
    steps: tuple[Primitive, ...] = (
        Split("s0.d1", 2), Split("s0.d2", 8),
        Reorder(("s0.d1o", "s0.r0", "s0.d1i", "s0.d2o", "s0.d2i")),
        Vectorize("s0.d2i"), Unroll("s0.d2o"), Unroll("s0.d1i"),
        Prefetch("i1", "s0.d0", 1, "s0.r0", "s0.d1o", 16),
    )  # fmt: skip
    nest = applied(turned, *steps)
    prefetches = [leaf for leaf in leaves(nest.body) if isinstance(leaf, loop_ir.PrefetchHint)]
    assert len(prefetches) == 6  # 40 columns over 7 tiles of rows
    asked = {
        prefetch.index[1].evaluate({"s0.d1o": tile}) for prefetch in prefetches for tile in range(7)
    }  # fmt: skip
    assert asked == set(range(40))
    assert {str(prefetch.index[0]) for prefetch in prefetches} == {"(s0.d0 + 1)%3"}


def test_a_tile_prefetches_the_lines_that_it_stores(golden: Golden) -> None:
    nest = with_prefetches(CacheWrite("s0", "s0.d0o", "acc"), PrefetchStores("s0", "s0.d0o", 4))
    assert to_text(nest) == golden


@pytest.mark.parametrize(("columns", "places"), [(24, [0, 4]), (25, [0, 4, 7])])
def test_a_row_that_begins_within_a_line_has_one_line_more(columns: int, places: list[int]) -> None:
    nest = Trace((*TILES, PrefetchStores("s0", "s0.d0o", 4))).apply(
        plain_nest(matmul(6, columns, 5))
    )
    hints = [leaf for leaf in leaves(nest.body) if isinstance(leaf, loop_ir.PrefetchHint)]
    assert [int(hint.index[1].const) for hint in hints] == places * 2
    assert {str(hint.index[0]) for hint in hints} == {"2*s0.d0o", "2*s0.d0o + 1"}


def test_prefetches_of_stores_are_refused_where_they_make_no_sense() -> None:
    def refused(step: PrefetchStores, reason: str, *before: Primitive) -> None:
        with pytest.raises(ScheduleError, match=reason):
            with_prefetches(*before, step)

    refused(PrefetchStores("i0", "s0.d0o", 4), "must store 'i0'")
    refused(PrefetchStores("s0", "s0.d0o", 0), "step be positive")
    with pytest.raises(ScheduleError, match="more than 64 prefetches"):
        Trace((*TILES, PrefetchStores("s0", "s0.d1o", 1))).apply(plain_nest(matmul(12, 24, 5)))
    refused(
        PrefetchStores("acc", "s0.d1o", 4), "must store 'acc'", CacheWrite("s0", "s0.d0o", "acc")
    )
    refused(PrefetchStores("s0", "s0.d1ii", 4), "nothing can be inserted")
