"""The Python way to write a computation: what it builds, and what it refuses."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from tilewright import schedules
from tilewright.schedules.algebra.affine import var
from tilewright.schedules.algebra.comparisons import Ge0
from tilewright.schedules.algebra.scalar import All, Cast, Load, Reducer, Select, depth_of
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.frontend import expr as x
from tilewright.schedules.frontend import functions as fn
from tilewright.schedules.frontend.expr_core import Expr, Index
from tilewright.schedules.frontend.reading import TensorExpr
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.workload.tensors import Axis, Reduction
from tilewright.schedules.workload.validate import validate
from tilewright.schedules.workload.workload import Workload


def run(output: TensorExpr, *arrays: np.ndarray) -> np.ndarray:
    """The value of `output` by the reference, inputs in order of first use."""
    return np.asarray(evaluate(Workload.of(output), list(arrays))[0])


def vector(n: int, dtype: str = "f32") -> TensorExpr:
    return x.placeholder("A", (n,), dtype)


def test_matmul_is_one_stage_with_the_callers_names() -> None:
    a, b = x.placeholder("A", (3, 4)), x.placeholder("B", (4, 5))
    k = x.reduce_axis(4, "k")
    c = x.compute("C", (3, 5), lambda i, j: x.sum(a[i, k] * b[k, j], axis=k))
    workload = Workload.of(c, inputs=[b, a])
    (stage,) = workload.stages
    assert [t.name for t in workload.inputs] == ["B", "A"]
    assert stage.axes == (Axis("i", 3), Axis("j", 5))
    assert stage.reduce_axes == (Axis("k", 4),)
    assert stage.kind == Reduction(Reducer.SUM, (Axis("k", 4),))
    assert workload.flops == 2 * 3 * 4 * 5


def test_a_reduction_inside_an_expression_becomes_a_stage_of_its_own() -> None:
    a = x.placeholder("A", (2, 7))
    k = x.reduce_axis(7)
    y = x.compute("Y", (2,), lambda b: fn.sqrt(x.sum(a[b, k] * a[b, k], axis=k)))
    workload = Workload.of(y)
    assert [s.name for s in workload.stages] == ["Y_sum", "Y"]
    assert workload.stages[0].reduces_by(Reducer.SUM)
    data = np.arange(14, dtype=np.float32).reshape(2, 7)
    np.testing.assert_allclose(run(y, data), np.sqrt((data**2).sum(1)))


def test_a_split_off_reduction_runs_only_over_the_axes_it_depends_on() -> None:
    a = x.placeholder("A", (4, 6))
    k = x.reduce_axis(6)
    y = x.compute("Y", (4, 6), lambda i, j: a[i, j] - x.max(a[i, k], axis=k))
    top = Workload.of(y).stages[0]
    assert top.tensor.shape == (4,)
    data = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    np.testing.assert_allclose(run(y, data), data - data.max(1, keepdims=True), rtol=1e-6)


def test_softmax_in_one_line_nests_reductions_and_shares_the_equal_ones() -> None:
    a = x.placeholder("A", (3, 5))
    k, m = x.reduce_axis(5), x.reduce_axis(5)

    def top(i: Index) -> Expr:
        return x.max(a[i, m], axis=m)

    y = x.compute(
        "Y",
        (3, 5),
        lambda i, j: fn.exp(a[i, j] - top(i)) / x.sum(fn.exp(a[i, k] - top(i)), axis=k),
    )
    workload = Workload.of(y)
    assert [s.name for s in workload.stages] == ["Y_max", "Y_sum", "Y"]
    data = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)
    e = np.exp(data - data.max(1, keepdims=True))
    np.testing.assert_allclose(run(y, data), e / e.sum(1, keepdims=True), rtol=1e-5)


def test_a_total_has_the_shape_of_one_element() -> None:
    a = vector(5)
    k = x.reduce_axis(5)
    y = x.compute("Y", (5,), lambda i: a[i] / x.sum(a[k], axis=k))
    assert Workload.of(y).stages[0].tensor.shape == (1,)
    data = np.arange(1, 6, dtype=np.float32)
    np.testing.assert_allclose(run(y, data), data / data.sum(), rtol=1e-6)


def test_every_reducer_and_function_means_what_numpy_means() -> None:
    a = x.placeholder("A", (2, 3))
    data = np.array([[0.5, 2.0, 3.0], [1.0, 0.25, 4.0]], np.float32)
    reducers: list[tuple[Callable[..., Expr], Callable[..., np.ndarray]]] = [
        (x.sum, np.sum), (x.max, np.max), (x.min, np.min), (x.prod, np.prod),
    ]  # fmt: skip
    for ours, theirs in reducers:
        k = x.reduce_axis(3)
        y = x.compute("Y", (2,), lambda i, f=ours, k=k: f(a[i, k], axis=k))
        np.testing.assert_allclose(run(y, data), theirs(data, axis=1), rtol=1e-6)
    functions: list[tuple[Callable[[Expr], Expr], Callable[..., np.ndarray]]] = [
        (fn.exp, np.exp), (fn.log, np.log), (fn.sqrt, np.sqrt), (fn.tanh, np.tanh),
        (fn.floor, np.floor), (fn.abs, np.abs), (fn.rsqrt, lambda v: 1 / np.sqrt(v)),
        (fn.sigmoid, lambda v: 1 / (1 + np.exp(-v))),
    ]  # fmt: skip
    for f, reference in functions:
        y = x.compute("Y", (2, 3), lambda i, j, f=f: f(a[i, j] - 0.125))
        np.testing.assert_allclose(run(y, data), reference(data - 0.125), rtol=1e-5)


def test_select_takes_conditions_on_indices_and_on_values() -> None:
    a = x.placeholder("A", (4, 4))
    y = x.compute(
        "Y",
        (4, 4),
        lambda i, j: x.select(x.all_of(i >= j, a[i, j] > 0, x.ne(i, 3)), a[i, j], -1),
    )
    data = np.random.default_rng(2).normal(size=(4, 4)).astype(np.float32)
    i, j = np.indices((4, 4))
    wanted = np.where((i >= j) & (data > 0) & (i != 3), data, -1)
    np.testing.assert_array_equal(run(y, data), wanted.astype(np.float32))


def test_any_of_and_not_cover_the_rest_of_logic() -> None:
    a = x.placeholder("A", (6,))
    y = x.compute(
        "Y", (6,), lambda i: x.select(x.not_(x.any_of(x.eq(i, 1), i > 3, a[i] < 0)), a[i], 9)
    )
    data = np.array([1, 2, -3, 4, 5, 6], np.float32)
    np.testing.assert_array_equal(run(y, data), np.array([1, 9, 9, 4, 9, 9], np.float32))


def test_padded_guards_only_the_sides_that_may_be_outside() -> None:
    a = vector(10)
    r = x.reduce_axis(3, "r")
    y = x.compute("Y", (9,), lambda i: x.sum(x.padded(a, i + r - 1), axis=r))
    body = Workload.of(y).stages[0].body
    assert isinstance(body, Select)
    # i + r - 1 reaches 9, the last element, but never beyond.
    assert body.cond == All((Ge0(var("i") + var("r") - 1),))
    data = np.arange(10, dtype=np.float32)
    np.testing.assert_array_equal(
        run(y, data), np.convolve(np.pad(data, 1), np.ones(3), "valid")[:9].astype(np.float32)
    )


def test_padded_is_a_plain_read_where_it_cannot_be_outside() -> None:
    a = vector(10)
    y = x.compute("Y", (4,), lambda i: x.padded(a, 2 * i + 3))
    assert isinstance(Workload.of(y).stages[0].body, Load)


def test_a_guard_the_ranges_already_give_is_dropped() -> None:
    a = vector(8)
    y = x.compute("Y", (8,), lambda i: x.select(x.all_of(i >= 0, i < 8), a[i], 0))
    assert isinstance(Workload.of(y).stages[0].body, Load)


def test_a_read_is_allowed_where_a_condition_keeps_it_inside() -> None:
    a = vector(8)
    y = x.compute("Y", (8,), lambda i: x.select(i >= 3, a[i - 3], 0))
    z = x.compute("Z", (8,), lambda i: x.select(i < 3, 0, a[i - 3]))
    u = x.compute(
        "U", (8, 8), lambda i, j: x.select(x.all_of(i >= 4, j >= 1, i + j < 13), a[i + j - 5], 0)
    )
    data = np.arange(8, dtype=np.float32)
    shifted = np.concatenate([np.zeros(3), data[:5]])
    np.testing.assert_array_equal(run(y, data), shifted)
    np.testing.assert_array_equal(run(z, data), shifted)
    assert run(u, data)[7, 5] == data[7]


def test_transposed_convolution_reads_by_division_and_divisibility() -> None:
    a, w = vector(4), x.placeholder("W", (3,))
    r = x.reduce_axis(3, "r")
    y = x.compute(
        "Y",
        (9,),
        lambda o: x.sum(
            x.select(x.eq((o - r) % 2, 0), x.padded(a, (o - r) // 2), 0) * w[r], axis=r
        ),
    )
    body = Workload.of(y).stages[0].body
    guard = next(n for n in schedules.algebra.scalar.walk(body) if isinstance(n, Select))
    assert isinstance(guard.on_true, Load), "one guard, not two nested ones"
    assert isinstance(guard.cond, All)
    # Conditions on quotients are written on what is divided.
    assert [str(c) for c in guard.cond.conds] == ["(o + r)%2 == 0", "o >= r", "r >= o - 7"]
    data, taps = np.arange(1, 5, dtype=np.float32), np.array([1, 10, 100], np.float32)
    wanted = np.zeros(9, np.float32)
    for i in range(4):
        wanted[2 * i : 2 * i + 3] += data[i] * taps
    np.testing.assert_array_equal(run(y, data, taps), wanted)


def test_narrow_types_are_computed_wide_and_copied_narrow() -> None:
    a, b = x.placeholder("A", (4,), "u8"), x.placeholder("B", (4,), "i8")
    k = x.reduce_axis(4)
    dot = x.compute("Y", (1,), lambda i: x.sum(a[k + i] * b[k + i], axis=k))
    assert dot.dtype is DType.I32
    assert x.compute("Y", (4,), lambda i: a[i]).dtype is DType.U8
    assert x.compute("Y", (4,), lambda i: x.maximum(a[i], 3)).dtype is DType.U8
    assert x.compute("Y", (4,), lambda i: x.maximum(a[i], -3)).dtype is DType.I32
    half = x.placeholder("H", (4,), "bf16")
    assert x.compute("Y", (1,), lambda i: x.max(half[k + i], axis=k)).dtype is DType.F32


def test_a_stated_type_casts_the_result_in_a_stage_after_the_reduction() -> None:
    a = x.placeholder("A", (4, 4), "bf16")
    k = x.reduce_axis(4)
    y = x.compute("Y", (4,), lambda i: x.sum(a[i, k], axis=k), dtype="bf16")
    first, second = Workload.of(y).stages
    assert (first.tensor.dtype, second.tensor.dtype) == (DType.F32, DType.BF16)
    assert isinstance(second.body, Cast)


def test_an_index_is_a_number_beside_a_value() -> None:
    a = vector(4)
    y = x.compute("Y", (4,), lambda i: a[i] * i + (3 - i))
    np.testing.assert_array_equal(
        run(y, np.ones(4, np.float32)), np.array([3, 3, 3, 3], np.float32)
    )


def test_outputs_and_shared_stages_come_in_order_of_first_use() -> None:
    a = vector(4)
    t = x.compute("T", (4,), lambda i: a[i] + 1)
    u = x.compute("U", (4,), lambda i: t[i] * 2)
    v = x.compute("V", (4,), lambda i: t[i] * u[i])
    workload = Workload.of(v, u, name="both")
    assert [s.name for s in workload.stages] == ["T", "U", "V"]
    assert workload.outputs == ("V", "U")
    assert workload.consumers("T") == workload.stages[1:]


def test_two_stages_split_off_get_names_of_their_own() -> None:
    a = x.placeholder("A", (3, 4))
    k = x.reduce_axis(4)
    taken = x.compute("Y_sum", (3,), lambda i: a[i, 0])
    y = x.compute("Y", (3,), lambda i: fn.sqrt(x.sum(a[i, k], axis=k)) + taken[i])
    names = [s.name for s in Workload.of(y).stages]
    assert len(set(names)) == 3
    assert names[-1] == "Y"


def test_a_deep_or_huge_expression_is_refused_not_recursed_into() -> None:
    a = vector(4)

    def deep(i: Index) -> Expr:
        value = a[i]
        for _ in range(2000):
            value = value * 2
        return value

    def wide(i: Index) -> Expr:
        value = a[i]
        for _ in range(50):
            value = value * value
        return value

    with pytest.raises(WorkloadError, match=r"56 levels.*several stages"):
        x.compute("Y", (4,), deep)
    with pytest.raises(WorkloadError, match=r"10000 operations"):
        x.compute("Y", (4,), wide)


A = x.placeholder("A", (4, 5))
I32 = x.placeholder("I", (4,), "i32")
F64 = x.placeholder("D", (4,), "f64")
K = x.reduce_axis(5, "k")


@pytest.mark.parametrize(
    ("fn", "code", "message"),
    [
        (lambda i: A[i, i + 2], "out_of_bounds",
         r"A\[i, i \+ 2\] may be out of bounds: i \+ 2 in dimension 1 takes 2\.\.5, the extent"),
        (lambda i: x.select(i >= 1, A[i, i - 2], 0), "out_of_bounds", "takes -2..1"),
        (lambda i: A[i], "bad_rank", r"A has 2 dimensions \(4, 5\), got 1 indices"),
        (lambda i: A[i, 0] + I32[i], "dtype_clash", r"add of f32 and i32.*cast\(x"),
        (lambda i: x.select(i > 0, A[i, 0], F64[i]), "dtype_clash", "select of f32 and f64"),
        (lambda i: I32[i] / 2, "bad_dtype", "only floats divide"),
        (lambda i: fn.exp(I32[i]), "bad_dtype", "exp of i32: cast"),
        (lambda i: I32[i] * 0.5, "dtype_clash", "0.5 is not a value of i32"),
        (lambda i: I32[i] + 2**40, "bad_constant", "does not fit i32"),
        (lambda i: I32[i] + 10**5000, "bad_constant", "a huge number does not fit i32"),
        (lambda i: I32[i] + float("inf"), "dtype_clash", "inf is not a value of i32"),
        (lambda i: A[i, 0] * float("nan"), "bad_constant", "a constant is a number"),
        (lambda i: A[i, 0] * 1e39, "bad_constant", "does not fit f32"),
        (lambda i: A[i, 0] * 10**400, "bad_constant", "does not fit f32"),
        (lambda i: A[i, A[i, 0]], "bad_index", "an index is an integer, got f32"),
        (lambda i: A[i, i * i], "bad_index", "not an affine index"),
        (lambda i: A[i, i // 0], "bad_index", "constant integer >= 1"),
        (lambda i: A[i, K], "unknown_axis", "reduce axis 'k' is used outside"),
        (lambda i: x.sum(A[i, 0], axis=K), "unused_axis", "'k', which the expression does not use"),
        (lambda i: x.sum(A[i, K], axis=(K, K)), "duplicate", "named twice"),
        (lambda i: x.max(A[i, 0], 0), "bad_reduction", r"of two values: maximum\(a, b\)"),
        (lambda i: x.select(cast(Any, True), A[i, 0], 0), "bad_node", "needs a condition"),
        (lambda i: A[i, 0] if i > 1 else 0, "bad_node", "no truth value"),
        (lambda i: A, "bad_node", r"A is a tensor; index it"),
        (lambda i: None, "bad_node", "got NoneType None"),
        (lambda i, j: A[i, j], "bad_rank", r"Y has 1 dimensions, its function takes 2"),
        (lambda i: x.cast(A[i, 0], "f8"), "bad_dtype", "unknown element type 'f8'; choices: f32"),
        (lambda i: x.all_of(), "bad_node", "at least one condition"),
    ],
)  # fmt: skip
def test_what_is_not_a_computation_is_refused_with_a_reason(
    fn: Callable[..., object], code: str, message: str
) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        x.compute("Y", (4,), fn)
    assert caught.value.code == code


def test_an_index_of_another_compute_is_refused() -> None:
    leaked: list[Index] = []

    def keep(i: Index) -> Expr:
        leaked.append(i)
        return A[i, 0]

    x.compute("T", (4,), keep)
    with pytest.raises(WorkloadError, match="index 'i' belongs to another compute"):
        x.compute("Y", (4,), lambda j: A[leaked[0], 0])


@pytest.mark.parametrize("shape", [(0,), (-3,), (2**31,), (1,) * 9, (2.5,), (True,)])
def test_shapes_have_at_most_eight_positive_extents(shape: tuple[int, ...]) -> None:
    with pytest.raises(WorkloadError, match=r"must have 0\.\.8 dimensions|an extent"):
        x.placeholder("A", shape)


@pytest.mark.parametrize("name", ["", "2a", "a b", "a" * 65, "é", "a;b"])
def test_names_are_identifiers_of_c(name: str) -> None:
    with pytest.raises(WorkloadError, match="must be a letter or _"):
        x.placeholder(name, (1,))


def test_of_checks_the_argument_list() -> None:
    a, b = x.placeholder("A", (2,)), x.placeholder("B", (2,))
    y = x.compute("Y", (2,), lambda i: a[i] + b[i])
    with pytest.raises(WorkloadError, match=r"'B' is read but missing in inputs=\[A\]"):
        Workload.of(y, inputs=[a])
    with pytest.raises(WorkloadError, match="input 'C' is never read"):
        Workload.of(y, inputs=[a, b, x.placeholder("C", (2,))])
    with pytest.raises(WorkloadError, match="input 'Y' is computed"):
        Workload.of(y, inputs=[a, b, y])
    with pytest.raises(WorkloadError, match="output 'A' is an input"):
        Workload.of(a)
    with pytest.raises(WorkloadError, match="at least one output"):
        Workload.of()
    with pytest.raises(WorkloadError, match="named twice"):
        Workload.of(y, y)
    other = x.placeholder("A", (2,))
    with pytest.raises(WorkloadError, match="two tensors are named 'A'"):
        x.compute("Z", (2,), lambda i: a[i] + other[i])


def test_the_package_offers_what_it_promises() -> None:
    for name in schedules.__all__:
        assert getattr(schedules, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = schedules.nothing
    validate(schedules.operators.matmul(M=2, N=3, K=4))


def test_numbers_and_indices_stand_on_either_side() -> None:
    a = vector(4)
    data = np.array([1, 2, 4, 5], np.float32)

    def run_of(fn: Callable[[Index], object]) -> np.ndarray:
        return run(x.compute("Y", (4,), fn), data)

    np.testing.assert_array_equal(run_of(lambda i: 8 - a[i]), 8 - data)
    np.testing.assert_array_equal(run_of(lambda i: 8 / a[i]), 8 / data.astype(np.float64))
    np.testing.assert_array_equal(run_of(lambda i: -a[i] + i), np.arange(4) - data)
    np.testing.assert_array_equal(run_of(lambda i: a[3 + -i]), data[::-1])
    np.testing.assert_array_equal(run_of(lambda i: x.select(a[i] <= 2, 1, a[i])), [1, 1, 4, 5])
    np.testing.assert_array_equal(run_of(lambda i: x.select(a[i] >= i + 2, 0, a[i])), [1, 2, 0, 0])
    np.testing.assert_array_equal(run_of(lambda i: x.select(x.eq(a[i], 4), 9, a[i])), [1, 2, 9, 5])
    np.testing.assert_array_equal(run_of(lambda i: x.select(x.ne(a[i], 4), 9, a[i])), [9, 9, 4, 9])
    np.testing.assert_array_equal(run_of(lambda i: a[i] + x.const(2, "f32")), data + 2)
    whole = x.compute("Y", (4,), lambda *at: x.select(at[0] > 1, at[0], 7))
    assert whole.dtype is DType.I32
    assert Workload.of(whole).stages[0].axes == (Axis("i0", 4),)
    shares = x.compute("Y", (4,), lambda i: fn.erf(a[i] * 0))
    np.testing.assert_array_equal(run(shares, data), np.zeros(4))
    with pytest.raises(TypeError, match="cannot be iterated"):
        list(a)
    with pytest.raises(TypeError, match="unsupported operand"):
        x.compute("Y", (4,), lambda i: i + "1")


def test_a_sum_of_many_terms_is_balanced_and_a_product_is_refused() -> None:
    a = vector(3)
    total = x.compute("Y", (3,), lambda i: functools.reduce(operator.sub, [a[i]] * 300))
    assert depth_of(Workload.of(total).stages[0].body) < 56
    np.testing.assert_array_equal(run(total, np.ones(3, np.float32)), np.full(3, 1 - 299))
    with pytest.raises(WorkloadError, match="split it into several stages"):
        x.compute("Y", (3,), lambda i: functools.reduce(operator.mul, [a[i]] * 300))
