"""Reductions of tuples: what they mean, their key, which schedules are legal, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.golden_text import Golden
from tests.support.schedules.tuples import (
    ARGMAX,
    COMPOSED,
    composed,
    first_greatest,
    moments,
    of_rows,
    rescaled,
    with_position,
)
from tests.support.schedules.workloads import check_meaning, notation
from tilewright.schedules import (
    Workload,
    WorkloadError,
    cast,
    compute,
    maximum,
    ne,
    placeholder,
    reduce_axis,
    reduce_tuple,
    select,
)
from tilewright.schedules import max as greatest
from tilewright.schedules import sum as total
from tilewright.schedules.algebra.scalar import loads
from tilewright.schedules.errors import ScheduleError
from tilewright.schedules.lowering.lower import lower, plain_nest
from tilewright.schedules.nest.loop_ir import StoreElement, leaves
from tilewright.schedules.nest.printer import to_text
from tilewright.schedules.primitives import (
    CacheWrite,
    ComputeAt,
    Inline,
    Parallel,
    Partition,
    Reorder,
    RFactor,
    Split,
    Vectorize,
)
from tilewright.schedules.reference.error_bound import bounded_outputs
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import MergeAxes, ReverseAxis, SplitTuples
from tilewright.schedules.trace import Step, Trace
from tilewright.schedules.workload.document_reader import read_document
from tilewright.schedules.workload.tensors import Reduction, TupleReduction
from tilewright.tuner.judge.oracle import Oracle

Array = npt.NDArray[Any]


def drawn(workload: Workload, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-4, 5, t.shape).astype(t.dtype.numpy) for t in workload.inputs]


# --- meaning -------------------------------------------------------------------------------------


def test_the_first_of_equals_is_the_position_of_the_greatest_value() -> None:
    (x,) = drawn(ARGMAX)
    (found,) = evaluate(ARGMAX, [x])
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, x.argmax(1))


@pytest.mark.parametrize("extent", [1, 2, 3, 37, 64])
def test_tuples_are_combined_in_ascending_order(extent: int) -> None:
    workload = of_rows(
        lambda x, k: (x, cast(k + 1, "i64")), (1, 0), composed, 0, 1, dtype="i64", shape=(4, extent)
    )
    (x,) = drawn(workload)
    factor, offset = np.ones(4, np.int64), np.zeros(4, np.int64)
    with np.errstate(over="ignore"):
        for k in range(extent):
            factor, offset = factor * x[:, k], offset * x[:, k] + k + 1
    found = evaluate(workload, [x])
    np.testing.assert_array_equal(found[0], factor)
    np.testing.assert_array_equal(found[1], offset)


def test_the_last_of_several_reduction_axes_is_the_fastest() -> None:
    x, a, b = placeholder("X", (3, 2, 5), "i32"), reduce_axis(2, "a"), reduce_axis(5, "b")

    def element(i: Any) -> Any:
        return reduce_tuple((x[i, a, b], a + b), (1, 0), composed, axis=(a, b))[1]

    workload = Workload.of(compute("T", (3,), element), inputs=[x])
    (given,) = drawn(workload)
    offset = np.zeros(3, np.int32)
    for p in range(2):
        for q in range(5):
            offset = offset * given[:, p, q] + p + q
    np.testing.assert_array_equal(evaluate(workload, [given])[0], offset)


def test_moments_and_rescaled_sums_are_those_of_numpy() -> None:
    x = np.random.default_rng(0).normal(3, 2, (5, 37)).astype(np.float32)
    wide = x.astype(np.float64)
    spread = of_rows(lambda v, k: (1.0, v, 0.0), (0.0, 0.0, 0.0), moments, 1, 2)
    mean, squares = evaluate(spread, [x])
    np.testing.assert_allclose(mean, wide.mean(1), rtol=1e-12)
    np.testing.assert_allclose(squares, wide.var(1) * 37, rtol=1e-12)
    softmax = of_rows(lambda v, k: (v, 1.0), (-3e38, 0.0), rescaled, 1)
    expected = np.exp(wide - wide.max(1, keepdims=True)).sum(1)
    np.testing.assert_allclose(evaluate(softmax, [x])[0], expected, rtol=1e-12)


def test_arrays_are_reduced_along_any_axis() -> None:
    x, w = placeholder("x", (3, 4, 5)), placeholder("w", (4, 1))
    best, weight = reduce_tuple((x, w), (-inf, 0.0), first_greatest, axis=1)
    workload = Workload.of(best, weight, inputs=[x, w])
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=t.shape).astype(np.float32) for t in workload.inputs)
    found = evaluate(workload, [a, b])
    np.testing.assert_array_equal(found[0], a.max(1))
    np.testing.assert_array_equal(found[1], b[:, 0][a.argmax(1)])


# --- the normal form -----------------------------------------------------------------------------


def test_documents_give_the_same_workload() -> None:
    for workload in (ARGMAX, COMPOSED):
        assert read_document(workload.to_json()).stages == workload.stages
        assert Workload.from_json(workload.to_json()).key == workload.key
        assert workload.normalised().key == workload.key


def test_the_key_depends_on_everything_that_tuples_are_made_of() -> None:
    others = [
        of_rows(with_position, (-inf, 0), first_greatest, 1, commutative=True),
        of_rows(with_position, (-inf, 1), first_greatest, 1),
        of_rows(lambda x, k: (x, k + 1), (-inf, 0), first_greatest, 1),
        of_rows(
            with_position, (-inf, 0),
            lambda a, b: (maximum(a[0], b[0]), select(b[0] >= a[0], b[1], a[1])), 1,
        ),
        of_rows(with_position, (-inf, 0), first_greatest, 0),
    ]  # fmt: skip
    assert len({ARGMAX.key, *(other.key for other in others)}) == 6


def test_the_order_of_commutative_operands_does_not_matter() -> None:
    turned = of_rows(
        with_position, (-inf, 0),
        lambda a, b: (maximum(b[0], a[0]), select(a[0] < b[0], b[1], a[1])), 1,
    )  # fmt: skip
    assert turned.key == ARGMAX.key


def test_components_on_which_the_result_does_not_depend_are_left_out() -> None:
    wide = of_rows(
        lambda x, k: (x * x, x, k), (0.0, -inf, 0),
        lambda a, b: (a[0] + b[0], maximum(a[1], b[1]), select(b[1] > a[1], b[2], a[2])), 2,
    )  # fmt: skip
    assert wide.key == ARGMAX.key


def test_components_of_their_own_are_ordinary_reductions() -> None:
    x, k = placeholder("X", (5, 37)), reduce_axis(37, "k")
    extremes = of_rows(
        lambda v, p: (v, v * v), (-inf, 0.0),
        lambda a, b: (maximum(a[0], b[0]), a[1] + b[1]), 0, 1,
    )  # fmt: skip
    plain = Workload.of(
        compute("M", (5,), lambda i: greatest(x[i, k], axis=k)),
        compute("S", (5,), lambda i: total(x[i, k] * x[i, k], axis=k)),
        inputs=[x],
    )
    assert extremes.key == plain.key
    # A number that is not the identity of the reducer is part of the result.
    shifted = of_rows(lambda v, p: (v,), (1.0,), lambda a, b: (a[0] + b[0],), 0)
    assert isinstance(shifted.stages[0].kind, TupleReduction)
    assert isinstance(extremes.stages[0].kind, Reduction)


# --- nests ---------------------------------------------------------------------------------------


def test_components_in_golden_text(golden: Golden) -> None:
    both = of_rows(lambda x, k: (1.0, x, 0.0), (0.0, 0.0, 0.0), moments, 1, 2)
    texts = (to_text(plain_nest(workload.normalised())) for workload in (ARGMAX, both))
    assert "\n".join(texts) == golden


def test_stages_of_one_reduction_share_its_nest() -> None:
    both = of_rows(with_position, (-inf, 0), first_greatest, 0, 1).normalised()
    written = [leaf.buffer for leaf in leaves(plain_nest(both).body)]
    assert sorted(written) == sorted(both.outputs)
    alone = of_rows(with_position, (-inf, 0), first_greatest, 1).normalised()
    assert len(list(leaves(plain_nest(alone).body))) == 2


def test_components_that_need_each_other_are_stored_after_all_are_computed() -> None:
    turns = of_rows(
        lambda x, k: (x, x + 1), (0, 0), lambda a, b: (a[0] + b[1] - b[1] + b[0], a[1] + b[1]), 0,
        dtype="i32",
    )  # fmt: skip
    crossed = of_rows(
        lambda x, k: (x, x + 1, x), (1, 0, 0),
        lambda a, b: (a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1], a[2] + b[2]), 0, 1,
        dtype="i32",
    )  # fmt: skip
    for workload in (turns, crossed):
        nest = plain_nest(workload.normalised())
        stored = set[str]()
        for leaf in leaves(nest.body):
            assert isinstance(leaf, StoreElement)
            # A read of a component that is already new must be of a combination stored elsewhere.
            read = {load.tensor for load in loads(leaf.value)}
            assert all(".new" in name for name in read & stored)
            stored.add(leaf.buffer)


def lowered(workload: Workload, *steps: Step) -> None:
    """The nest after `steps`, which has been shown to be right."""
    check_meaning(workload.normalised(), lower(workload.normalised(), Trace(steps)))


@pytest.mark.parametrize(
    "steps",
    [
        (Split("s0.d0", 4), Parallel("s0.d0o")),
        (Split("s0.r0", 8),),
        (Partition("s0.r0", 20),),
        (Reorder(("s0.r0", "s0.d0")), Vectorize("s0.d0")),
        (Split("s0.d0", 2), Reorder(("s0.d0o", "s0.r0", "s0.d0i")), Vectorize("s0.d0i")),
        (SplitTuples("s0", 3),),
        (SplitTuples("s0", 8), SplitTuples("s2", 2)),
    ],
    ids=str,
)
@pytest.mark.parametrize("workload", [ARGMAX, COMPOSED], ids=["argmax", "composed"])
def test_legal_steps_keep_the_meaning(workload: Workload, steps: tuple[Step, ...]) -> None:
    lowered(workload, *steps)


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((Parallel("s0.r0"),), "combine into the same elements"),
        ((Vectorize("s0.r0"),), "not one reduction"),
        ((Split("s0.r0", 8), Reorder(("s0.r0i", "s0.r0o"))), "depend on each other"),
        ((RFactor("s0.r0", "part"),), "RFactor"),
        ((CacheWrite("s0", "s0.d0", "acc"),), "also reads"),
        ((ReverseAxis("s0", "r0"),), "order of the axis"),
        ((SplitTuples("s0", 37),), "37 positions"),
        ((SplitTuples("s0", 1),), "37 positions"),
        ((SplitTuples("s0", 4, interleaved=True),), "any order"),
    ],
    ids=str,
)
def test_steps_that_would_change_the_order_are_refused(
    steps: tuple[Step, ...], reason: str
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        lowered(COMPOSED, *steps)


def test_stages_are_not_computed_in_loops_of_their_readers() -> None:
    x, k = placeholder("X", (5, 37)), reduce_axis(37, "k")
    best = compute(
        "B", (5,), lambda i: reduce_tuple((x[i, k], k), (-inf, 0), first_greatest, axis=k)[1]
    )
    workload = Workload.of(compute("Y", (5,), lambda i: best[i] * 2), inputs=[x])
    for step in (ComputeAt("s0", "s1.d0"), Inline("s0")):
        with pytest.raises(ScheduleError, match=r"unscheduled|computed from each other"):
            lowered(workload, step)


def test_axes_that_are_combined_in_another_order_are_not_merged() -> None:
    x, a, b = placeholder("X", (3, 2, 5), "i32"), reduce_axis(2, "a"), reduce_axis(5, "b")

    def workload(axes: tuple[Any, ...]) -> Workload:
        def element(i: Any) -> Any:
            return reduce_tuple((x[i, a, b], x[i, a, b]), (1, 0), composed, axis=axes)[1]

        return Workload.of(compute("T", (3,), element), inputs=[x])

    (given,) = drawn(workload((a, b)))
    merged = MergeAxes("s0", "r0", "r1").rewrite(workload((a, b)).normalised())
    expected = evaluate(workload((a, b)), [given])
    np.testing.assert_array_equal(evaluate(merged, [given.reshape(3, 10)])[0], expected[0])
    with pytest.raises(ScheduleError, match="just inside"):
        MergeAxes("s0", "r1", "r0").rewrite(workload((b, a)).normalised())


@pytest.mark.parametrize("extent", [9, 16, 37, 100])
@pytest.mark.parametrize("parts", [2, 4, 7])
def test_partial_results_are_blocks_or_interleaved(parts: int, extent: int) -> None:
    shape = (3, extent)
    ordered = of_rows(with_position, (1, 0), composed, 1, dtype="i32", shape=shape)
    (x,) = drawn(ordered)
    divided = SplitTuples("s0", parts).rewrite(ordered.normalised())
    assert len(divided.stages) == 3
    np.testing.assert_array_equal(evaluate(divided, [x])[0], evaluate(ordered, [x])[0])
    counted = of_rows(
        lambda v, k: (1.0, v, 0.0), (0.0, 0.0, 0.0), moments, 2, shape=shape, commutative=True
    )
    given = x.astype(np.float32)
    lanes = SplitTuples("s0", parts, interleaved=True).rewrite(counted.normalised())
    expected, bound = bounded_outputs(counted, [given])[0]
    found = evaluate(lanes, [given])[0]
    assert bound is not None
    assert (np.abs(found - expected) <= bound).all()


# --- checks --------------------------------------------------------------------------------------


def test_wrong_positions_are_found_and_right_ones_accepted() -> None:
    oracle = Oracle(ARGMAX)
    right: list[bool] = []
    wrong: list[bool] = []
    for case in oracle.full():
        (x,) = case.inputs
        last = (x.shape[1] - 1 - x[:, ::-1].argmax(1)).astype(np.int32)
        wrong.append(case.check([last]) is None)
        first = x.argmax(1).astype(np.int32)
        right.append(bool(np.isnan(x).any()) or case.check([first]) is None)
    assert all(right)
    assert not all(wrong)


def test_a_combination_that_skips_nan_on_one_side_is_open_where_there_is_one() -> None:
    x = np.asarray([[1, np.nan, 3], [2, 1, 0]], np.float32)
    workload = of_rows(with_position, (-inf, 0), first_greatest, 1, shape=(2, 3))
    _, bound = bounded_outputs(workload, [x])[0]
    assert bound is not None
    assert bound[0] >= 2  # the position of NaN and that of 3
    assert bound[1] == 0


def test_a_combination_that_places_nan_is_exact_for_them() -> None:
    def nan_first(a: Any, b: Any) -> tuple[Any, ...]:
        left, right = (ne(v[0], v[0]).value() for v in (a, b))
        takes = ((b[0] > a[0]).value() | right) & ~left
        return select(takes, b[0], a[0]), select(takes, b[1], a[1])

    workload = of_rows(with_position, (-inf, 0), nan_first, 1, shape=(3, 4))
    x = np.asarray([[1, np.nan, 3, np.nan], [2, 1, 0, 2], [-inf, -3, inf, inf]], np.float32)
    found, bound = bounded_outputs(workload, [x])[0]
    assert bound is None
    np.testing.assert_array_equal(found, [1, 0, 2])


def test_an_identity_that_is_none_leaves_elements_open() -> None:
    workload = of_rows(with_position, (0.0, -1), first_greatest, 1, shape=(2, 3))
    x = np.asarray([[-1, -2, -3], [2, 1, 0]], np.float32)
    _, bound = bounded_outputs(workload, [x])[0]
    assert bound is not None
    assert np.isinf(bound[0])
    assert bound[1] == 0


@pytest.mark.parametrize("extent", [2, 33, 300, 3000])
def test_the_bound_holds_for_the_order_of_the_axis(extent: int) -> None:
    workload = of_rows(lambda v, k: (1.0, v, 0.0), (0.0, 0.0, 0.0), moments, 2, shape=(4, extent))
    x = np.random.default_rng(0).normal(30, 1, (4, extent)).astype(np.float32)
    expected, bound = bounded_outputs(workload, [x])[0]
    count, mean, squares = (np.zeros(4, np.float32) for _ in range(3))
    for k in range(extent):
        new = count + np.float32(1)
        apart = x[:, k] - mean
        squares = squares + apart * apart * (count * (np.float32(1) / new))
        mean, count = mean + apart * (np.float32(1) / new), new
    assert bound is not None
    assert (np.abs(squares - expected) <= bound).all()
    assert (bound <= 0.05 * expected).all()


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identity", "combine", "code", "message"),
    [
        ((0.0,), first_greatest, "bad_reduction", "needs as many of identity"),
        ((-inf, 0), lambda a, b: (a[0],), "bad_reduction", "needs as many of combine"),
        ((-inf, 0), lambda a, b: (b[0], select(b[0] > a[0], b[1], a[1])), "bad_reduction", "left"),
        ((-inf, 0), lambda a, b: (a[0], select(b[0] > a[0], b[1], a[1])), "bad_reduction", "right"),
        ((-inf, 0), lambda a, b: (a[1] + b[1], a[0] + b[0]), "dtype_clash", "cast it"),
        ((-inf, 0.5), first_greatest, "dtype_clash", "0.5"),
    ],
)
def test_combinations_that_do_not_fit_are_refused(
    identity: tuple[Any, ...], combine: Callable[..., Any], code: str, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        of_rows(with_position, identity, combine, 1)
    assert caught.value.code == code


def test_a_combination_reads_components_only() -> None:
    x = placeholder("W", (37,))
    with pytest.raises(WorkloadError, match="components only"):
        of_rows(with_position, (-inf, 0), lambda a, b: (maximum(a[0], b[0]) + x[0], a[1] + b[1]), 1)


def test_axes_must_be_reduce_axes_that_the_values_use() -> None:
    x, k = placeholder("X", (5, 37)), reduce_axis(37, "k")
    with pytest.raises(WorkloadError, match="axes made by reduce_axis"):
        compute("T", (5,), lambda i: reduce_tuple((x[i, 0],), (0.0,), lambda a, b: a, axis=0)[0])
    with pytest.raises(WorkloadError, match="do not use"):
        compute("T", (5,), lambda i: reduce_tuple((x[i, 0],), (0.0,), lambda a, b: a, axis=k)[0])


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"position": 2}, "bad_reduction", "/stages/0/position"),
        ({"position": "1"}, "bad_document", "/stages/0/position"),
        ({"commutative": 1}, "bad_document", "/stages/0/commutative"),
        ({"reducer": "sum"}, "bad_reduction", "/stages/0/combine"),
        ({"identities": []}, "bad_reduction", "/stages/0/identities"),
        ({"reduce_axes": []}, "bad_reduction", "/stages/0/reduce_axes"),
        ({"body": {"op": "const", "value": 0, "dtype": "i32"}}, "", "/stages/0/body"),
    ],
)
def test_documents_that_are_not_valid_say_where(
    change: dict[str, Any], code: str, pointer: str
) -> None:
    document = ARGMAX.to_json()
    document["stages"][0] |= change
    with pytest.raises(WorkloadError) as caught:
        Workload.from_json(document)
    assert caught.value.code == code or not code
    assert (caught.value.pointer or "").startswith(pointer)


def test_a_tuple_is_the_root_of_a_reduction_of_tuples_only() -> None:
    document = notation("Y[i] = X[i] + 1", X="f32[4]").to_json()
    document["stages"][0]["body"] = {"op": "tuple", "values": [document["stages"][0]["body"]]}
    with pytest.raises(WorkloadError, match="unknown op 'tuple'"):
        Workload.from_json(document)
