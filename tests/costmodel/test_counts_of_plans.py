"""What follows from levels alone: iterations, tasks, the innermost loop, copies."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.costmodel.counts.nests import nest_counts
from tilewright.costmodel.counts.table import Counts
from tilewright.schedules.leaves import Leaf, Operations, Statement
from tilewright.schedules.nest.loop_ir import LoopKind
from tilewright.schedules.plan import Access, Level, Outline, Plan, axes_of
from tilewright.schedules.sketches.writer import BLOCKS, BODY, DEPTH, STEPS, TILES

A = Access("A", 4, ((1, 0), (0, 1)))
WINDOW = Access("I", 4, ((2, 1),))


def plan(*levels: Level) -> Plan:
    """Two settings of 97 rows by 50 points of a reduction."""
    return Plan(Outline(axes_of([("m", 97), ("k", 50)]), (A, WINDOW)), levels, 2)


BLOCKED = plan(
    Level(0, 24, np.asarray([True, False]), BLOCKS),
    Level(1, 20, role=DEPTH),
    Level(0, 8, role=TILES),
    Level(1, np.asarray([1, 4]), role=STEPS),
    Level(1, 1, role=BODY, kind=LoopKind.UNROLLED),
    Level(0, 1, kind=LoopKind.UNROLLED),
)
"""Blocks of three tiles of eight rows, the second with four steps written out."""


def runs(levels: Plan) -> list[list[float]]:
    """How often the body of each level runs."""
    return [(loop.executions * np.ones(2)).tolist() for loop in levels.leaf_loops]


def test_shorter_pieces_at_the_ends_run_once() -> None:
    blocks, depth, tiles, steps, *_ = runs(BLOCKED)
    assert blocks == [5, 5]
    assert depth == [15, 15]
    assert tiles == pytest.approx([13 * 3, 13 * 3])
    assert steps == pytest.approx([13 * 50, 13 * 13])


def test_every_part_of_an_axis_ends_in_a_shorter_piece() -> None:
    assert runs(plan(Level(1, 25), Level(1, 10, role=DEPTH)))[-1] == [2 * 3, 2 * 3]


def counts(levels: Plan) -> Counts:
    """Of a leaf in all loops of a plan."""
    unrolled = levels.trips[:, [x.kind is LoopKind.UNROLLED for x in levels.levels]].max(axis=1)
    does = Statement((Operations(frozenset({"m"}), 1, 1),), reduction_axes=frozenset({"k"}))
    return nest_counts(
        [Leaf(levels.leaf_loops[-1], does, accumulators=1, unrolls_reduction=unrolled > 1)], 2
    )


def test_a_shorter_task_is_the_part_that_it_has_of_the_tiles() -> None:
    found = counts(BLOCKED)
    assert found["tasks"].tolist() == [13 / 3, 1]
    assert found["regions"].tolist() == [1, 0]


def test_what_is_written_out_is_no_loop() -> None:
    found = counts(BLOCKED)
    # Blocks of the reduction are of 20, 20 and 10 steps.
    assert found["inner_trips"].tolist() == [50 / 3, 13 / 3]
    assert found["inner_entries"].tolist() == [13 * 3, 13 * 3]
    alone = counts(plan(Level(0, 8), Level(1, 1, role=BODY, kind=LoopKind.UNROLLED)))
    assert alone["inner_trips"].tolist() == [1, 1]
    assert alone["inner_entries"].tolist() == [13, 13]


def test_copies_hold_what_one_iteration_of_their_level_reads() -> None:
    (rows, depth), times = BLOCKED.region(A, np.asarray([0, 1]))
    assert rows.tolist() == [24, 24]
    assert depth.tolist() == [60, 20]  # whole blocks
    assert times.tolist() == [5, 15]
    (window,), _ = BLOCKED.region(WINDOW, np.asarray([1, 2]))
    assert window.tolist() == [23 * 2 + 20, 7 * 2 + 20]
