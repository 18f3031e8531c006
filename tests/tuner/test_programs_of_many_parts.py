"""Programs of many parts: what is alike is looked at once, what is left alone is passed by."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.schedules.spaces import target
from tilewright.costmodel.prior import Prior
from tilewright.schedules.arrays import distinct_rows
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.lowering.lower import plain_nest
from tilewright.schedules.nest.loop_ir import For, Nest, loops, loops_named, walk
from tilewright.schedules.primitives import Split, Unroll
from tilewright.schedules.sketches import space_for
from tilewright.schedules.sketches.program import ProgramSketch
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.search import prior_ranking as looks
from tilewright.tuner.search.setting_grid import setting_grids


def sums(count: int, *row_elements: int) -> Workload:
    """Row sums of inputs whose rows are `row_elements` long, in turn."""
    text = "; ".join(f"R{n}[i] += A{n}[i,k]" for n in range(count))
    rows = {f"A{n}": ("f32", (64, row_elements[n % len(row_elements)])) for n in range(count)}
    return from_notation(text, rows)


@pytest.fixture(scope="module")
def space() -> ScheduleSpace:
    return space_for(sums(6, 64, 320), target(2, 512, 32))


def program_of(space: ScheduleSpace) -> ProgramSketch:
    (program,) = space.sketches
    assert isinstance(program, ProgramSketch)
    return program


def test_parts_of_one_structure_are_alike_whatever_their_names(space: ScheduleSpace) -> None:
    assert program_of(space).equivalence_classes == ((0, 2, 4), (1, 3, 5))


def test_each_structure_is_looked_at_once(
    space: ScheduleSpace, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, best_of_part = [], looks._best_of_part

    def counted(*arguments):  # type: ignore[no-untyped-def]
        calls.append(arguments)
        return best_of_part(*arguments)

    monkeypatch.setattr(looks, "_best_of_part", counted)
    looks.rank_for_default(space)
    assert len(calls) == 2


def test_times_of_parts_alike_are_those_of_each_alone(space: ScheduleSpace) -> None:
    program, prior = program_of(space), Prior(space)
    settings = setting_grids(space)[0].sample(np.random.default_rng(0), 50)
    own = program.split_settings(settings)
    each = [prior._one(part, s) for part, s in zip(program.parts, own, strict=True)]
    together = prior.analyse(0, settings)
    expected = sum(one.secs for one in each)
    np.testing.assert_allclose(together.secs, expected, rtol=1e-12)
    np.testing.assert_array_equal(prior.log2_secs(0, settings), np.log2(together.secs))
    np.testing.assert_array_equal(
        program.feasible(settings),
        np.all([part.feasible(s) for part, s in zip(program.parts, own, strict=True)], axis=0),
    )


@pytest.mark.parametrize("largest", [5, 1 << 40])
def test_distinct_rows_say_where_each_row_went(largest: int) -> None:
    settings = np.random.default_rng(1).integers(0, 3, size=(40, 2))
    settings[settings == 2] = largest
    rows, places = distinct_rows(settings)
    assert len(rows) == 9
    np.testing.assert_array_equal(rows[places], settings)


def test_the_default_is_written_once(space: ScheduleSpace) -> None:
    program = program_of(space)
    trace, nest = program.lowered(program.default())
    assert program.trace(program.default()) is trace
    assert program.lowered(program.default())[1] is nest


def test_a_primitive_leaves_other_loops_as_they_are() -> None:
    before = plain_nest(sums(3, 64))
    after = Split("s1.r0", 8).apply(before)
    assert [a is b for a, b in zip(after.body, before.body, strict=True)] == [True, False, True]
    assert walked_names(after) == [loop.var for loop in loops(after.body)]
    assert set(walked_names(after)) == loops_named(after.body)


def walked_names(nest: Nest) -> list[str]:
    return [stmt.var for stmt in walk(nest.body) if isinstance(stmt, For)]


def test_a_trace_may_be_as_long_as_64_row_sums_need() -> None:
    trace = Trace((Unroll("i"),) * 1024)
    assert Trace.from_json(trace.to_json()) == trace
