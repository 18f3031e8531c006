"""A nest that is made of levels: loops are split, put in order and marked."""

from __future__ import annotations

from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.plan import LoopLevel
from tilewright.schedules.primitives import Reorder, Split
from tilewright.schedules.sketches.writer import UNROLLED, VECTORIZED, TraceWriter, called

PRODUCT = notation("C[i,j] += A[i,k] * B[k,j]", A="f32[10,6]", B="f32[6,13]").normalised()
ROW, COLUMN, DEPTH = "s0.d0", "s0.d1", "s0.r0"


def tiled() -> tuple[TraceWriter, list[tuple[LoopLevel, str]]]:
    """Blocks of 6 rows in tiles of 3, with columns by 8 inside and lanes of 4."""
    writer = TraceWriter(PRODUCT)
    levels = [
        LoopLevel(ROW, 6),
        LoopLevel(COLUMN, 8),
        LoopLevel(ROW, 3),
        LoopLevel(DEPTH),
        LoopLevel(ROW, 1, UNROLLED, "inside"),
        LoopLevel(COLUMN, 4, UNROLLED, "inside"),
        LoopLevel(COLUMN, 1, VECTORIZED, "inside"),
    ]
    return writer, writer.arrange(levels, first=[COLUMN])


def test_levels_become_loops_in_their_order() -> None:
    writer, made = tiled()
    nest = lower(PRODUCT, writer.trace)
    assert [loop.var for loop in loops(writer.nest.body)] == [name for _, name in made]
    assert [writer.loop(name).extent for _, name in made] == [2, 2, 2, 6, 3, 2, 4]
    kinds = [writer.loop(name).kind for name in called(made, "inside")]
    assert kinds == [LoopKind.UNROLLED, LoopKind.UNROLLED, LoopKind.VECTORIZED]
    check_meaning(PRODUCT, nest)


def test_a_loop_is_split_once_less_than_it_has_levels_the_first_ones_first() -> None:
    writer, _ = tiled()
    steps = writer.trace.steps
    splits = [step for step in steps if isinstance(step, Split)]
    assert [(step.loop[: len(ROW)], step.factor) for step in splits] == [
        (COLUMN, 8), (COLUMN, 4), (ROW, 6), (ROW, 3),
    ]  # fmt: skip
    assert sum(isinstance(step, Reorder) for step in steps) == 1


def test_steps_decide_what_is_split_from_what_and_not_places() -> None:
    writer = TraceWriter(PRODUCT)
    made = writer.arrange([LoopLevel(DEPTH, 4), LoopLevel(DEPTH), LoopLevel(DEPTH, 2)])
    outer, inner, middle = (name for _, name in made)
    assert [writer.loop(name).extent for name in (outer, inner, middle)] == [2, 2, 2]
    (_, chain) = writer.update_of("s0")
    order = [loop.var for loop in chain]
    assert order.index(outer) < order.index(inner) < order.index(middle)
    check_meaning(PRODUCT, lower(PRODUCT, writer.trace))


def test_levels_of_loops_that_are_not_there_are_left_out() -> None:
    writer = TraceWriter(PRODUCT)
    levels = [LoopLevel("s0.d7", 4), LoopLevel(ROW), LoopLevel("s0.d7")]
    assert writer.arrange(levels) == [(LoopLevel(ROW), ROW)]
    assert writer.trace.steps == ()
