"""What leaves of one body have in common is counted once; so are settings that are alike."""

from __future__ import annotations

import numpy as np

from tests.support.paths import example_target
from tilewright.costmodel.counts.counting import counts
from tilewright.costmodel.counts.nests import nest_counts
from tilewright.schedules import parse_workload
from tilewright.schedules.leaves import AccessPattern, Leaf, LeafLoop, Statement
from tilewright.schedules.sketches import space_for


def _copy(rows: LeafLoop, source: str, result: str, *pieces: tuple[int, int]) -> list[Leaf]:
    """A row of `source` copied in pieces of (trips, copies) of vectors."""
    does = Statement(
        reads=(AccessPattern(source, (source,), {"row": 100, "column": 1}),),
        writes=AccessPattern(result, (result,), {"row": 100, "column": 1}),
    )
    axis = frozenset({"column"})
    return [
        Leaf(
            LeafLoop(axis, trips, rows), does, {"column": copies}, "column", 16, is_remainder=n > 0
        )
        for n, (trips, copies) in enumerate(pieces)
    ]


def test_vectors_of_a_body_are_loaded_once_in_whatever_pieces_they_are_walked() -> None:
    """Three vectors are written in one piece and read in two; a fourth is new."""
    rows = LeafLoop(frozenset({"row"}), 10)
    leaves = [*_copy(rows, "x", "y", (1, 3), (0, 1)), *_copy(rows, "y", "z", (1, 2), (1, 2))]
    assert nest_counts(leaves, 1)["vector_loads"] == [10 * (3 + 1)]


def test_vectors_that_are_read_again_stay_in_registers() -> None:
    """What two leaves read is there from the first to the last; what one reads, one at a time."""
    rows = LeafLoop(frozenset({"row"}), 10)
    first, last = (_copy(rows, "x", name, (1, 6), (0, 1)) for name in ("y", "z"))
    between = _copy(rows, "w", "v", (1, 6), (0, 1))
    assert nest_counts([*first, *between, *last], 1)["live_registers"] == [6 + 1]
    assert nest_counts([*first, *between], 1)["live_registers"] == [1]


def test_loops_without_anything_to_run_are_none() -> None:
    rows = LeafLoop(frozenset({"row"}), 10)
    idle = [Leaf(LeafLoop(frozenset({"column"}), 7, rows), Statement(), frequency=0)]
    leaves = [*idle, *_copy(rows, "x", "y", (5, 1), (0, 1))]
    assert nest_counts(leaves, 1)["inner_entries"] == [10]


def test_a_setting_counts_the_same_beside_others_and_alone() -> None:
    space = space_for(
        parse_workload("softmax_mn:M=37,N=101").normalised(), example_target("znver5", 2)
    )
    (part,) = space.sketches[0].parts
    sizes = [len(knob.values) for knob in part.knobs]
    settings = np.random.default_rng(0).integers(0, sizes, (50, len(sizes)))
    together = counts(part, settings)
    for n, setting in enumerate(settings):
        alone = counts(part, setting[None])
        assert {name: column[n] for name, column in together.items()} == {
            name: column[0] for name, column in alone.items()
        }
