"""The schedule space of reductions of tuples: where lanes lie, and which partial results exist."""

from __future__ import annotations

import pytest

from tests.support.schedule_fuzz.check import this_machine
from tests.support.schedules.tuples import first_greatest, moments, of_rows, with_position
from tests.support.schedules.workloads import check_meaning
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.primitives import KeepElements
from tilewright.schedules.rewrites import SplitTuples
from tilewright.schedules.sketches import space_for
from tilewright.schedules.workload.workload import Workload


def spread(rows: int, columns: int) -> Workload:
    return of_rows(
        lambda x, k: (1.0, x, 0.0), (0.0, 0.0, 0.0), moments, 2,
        shape=(rows, columns), commutative=True,
    )  # fmt: skip


@pytest.mark.parametrize(("rows", "columns"), [(3, 700), (20, 1024), (2, 33), (40, 7)])
def test_every_default_is_right(rows: int, columns: int) -> None:
    for workload in (
        spread(rows, columns),
        of_rows(with_position, (-float("inf"), 0), first_greatest, 0, 1, shape=(rows, columns)),
    ):
        space = space_for(workload, this_machine())
        assert not space.dropped
        for sketch in space.sketches:
            _, nest = sketch.lowered(sketch.default())
            check_meaning(workload.normalised(), nest)


def test_lanes_lie_along_rows_of_commutative_combinations() -> None:
    first = space_for(spread(3, 4096), this_machine()).sketches[0]
    trace, nest = first.lowered(first.default())
    parts = [step.parts for step in trace.rewrites if isinstance(step, SplitTuples)]
    assert parts == [64, 8]
    assert any(isinstance(step, KeepElements) for step in trace.steps)
    assert any(loop.kind is LoopKind.VECTORIZED for loop in loops(nest.body))


def test_ordered_combinations_of_few_rows_are_divided_into_blocks() -> None:
    ordered = of_rows(with_position, (-float("inf"), 0), first_greatest, 1, shape=(2, 4096))
    first = space_for(ordered, this_machine()).sketches[0]
    steps = first.trace(first.default()).rewrites
    assert steps == (SplitTuples("s0", 8),)
    many = of_rows(with_position, (-float("inf"), 0), first_greatest, 1, shape=(64, 4096))
    assert (
        not space_for(many, this_machine())
        .sketches[0]
        .trace(space_for(many, this_machine()).sketches[0].default())
        .rewrites
    )
