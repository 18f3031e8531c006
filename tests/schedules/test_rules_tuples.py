"""The schedule space of reductions of tuples: where lanes lie, and which partial results exist."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedule_fuzz.check import this_machine
from tests.support.schedules.tuples import composed, first_greatest, moments, of_rows, with_position
from tests.support.schedules.workloads import check_meaning
from tilewright.schedules import Workload, compute, placeholder, reduce_axis, reduce_tuple
from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.loop_ir import LoopKind, loops
from tilewright.schedules.primitives import BlockRead, CacheRead, KeepElements
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import SplitTuples
from tilewright.schedules.sketches import space_for
from tilewright.tuner import compile


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


def ordered(shape: tuple[int, int]) -> Workload:
    return of_rows(lambda x, k: (x, k + 1), (1, 0), composed, 1, dtype="i32", shape=shape)


def products(matrices: int, rows: int, columns: int) -> Workload:
    """The products of `matrices` rows of 2x2 matrices each, whose elements are planes of one
    tensor."""
    shape = (matrices, 4, rows, columns)
    a, k = placeholder("A", shape, "i32"), reduce_axis(columns, "k")

    def combine(x: Any, y: Any) -> tuple[Any, ...]:
        pairs = ((0, 0), (0, 1), (2, 0), (2, 1))
        return tuple(x[m] * y[n] + x[m + 1] * y[n + 2] for m, n in pairs)

    def element(m: Any, i: Any) -> Any:
        given = tuple(a[m, n, i, k] for n in range(4))
        return reduce_tuple(given, (1, 0, 0, 1), combine, axis=k)[1]

    return Workload.of(compute("P", (matrices, rows), element), inputs=[a])


def check_kernels(workload: Workload) -> None:
    """Compare the kernels of all sketches, with their default and with the first other number of
    vectors, with the reference."""
    rng = np.random.default_rng(0)
    (given,) = workload.inputs
    values = rng.integers(-3, 4, given.shape).astype(np.int32)
    (right,) = evaluate(workload, [values])
    space = space_for(workload, this_machine())
    assert not space.dropped
    for sketch in space.sketches:
        _, nest = sketch.lowered(sketch.default())
        check_meaning(workload.normalised(), nest)
        found = compile(workload, sketch.trace(sketch.default()))(values)
        np.testing.assert_array_equal(found, right)


@settings(max_examples=25, deadline=None)
@given(st.integers(8, 40), st.integers(1, 70))
def test_blocks_of_rows_are_transposed_for_every_shape(rows: int, columns: int) -> None:
    check_kernels(ordered((rows, columns)))


@pytest.mark.parametrize("columns", [131, 256, 300])
def test_parts_of_few_rows_are_transposed(columns: int) -> None:
    check_kernels(ordered((3, columns)))


@pytest.mark.parametrize(("matrices", "rows", "columns"), [(1, 16, 40), (3, 19, 33)])
def test_several_reads_of_one_tensor_are_transposed(matrices: int, rows: int, columns: int) -> None:
    workload = products(matrices, rows, columns)
    check_kernels(workload)
    assert blocks_in(workload)


def blocks_in(workload: Workload) -> int:
    """Return the number of copies in registers that the default of the first sketch makes."""
    first = space_for(workload, this_machine()).sketches[0]
    steps = first.trace(first.default()).steps
    return sum(isinstance(step, BlockRead | CacheRead) for step in steps)


def test_ordered_combinations_of_many_rows_read_blocks() -> None:
    # the steps of the first line but one, of whole lines, and of the rest
    lanes = this_machine().lanes(DType.I32)
    assert blocks_in(ordered((64, 4 * lanes + 3))) == 2
    assert blocks_in(ordered((64, 4 * lanes))) == 2
    assert blocks_in(ordered((64, 7))) == 0


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
