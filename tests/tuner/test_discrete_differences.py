"""What a right kernel may do otherwise, made a discrete difference by a comparison, a conversion or
an index: no right kernel is refused for it, and what is still promised is held to."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.schedule_fuzz.check import random_setting, run_kernel, this_machine
from tests.support.schedule_fuzz.discrete import random_discrete
from tests.support.schedule_fuzz.liberal import liberal_outputs
from tests.support.schedules.workloads import notation
from tilewright.schedules.dtypes import DType
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.lowering.lower import start
from tilewright.schedules.sketches.forms.rewriting import regrouped, rewrites_for
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import compile_kernel
from tilewright.tuner.judge.cases import WorkloadCases
from tilewright.tuner.judge.compare import Case, Expected, expect
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.oracle import Oracle
from tilewright.tuner.judge.special_values import SpecialCase, special_case
from tilewright.tuner.search.default import default_trace

Array = npt.NDArray[Any]

TRANSPOSED = notation(
    "O[y,f] += W[y+1-2*i,f]*I[i]", {"y": 16}, W="f32[4,48]", I="f32[8]"
)  # fmt: skip
ARGMAX_OF_LOG = notation(
    "l[i,j]=log(1+X[i,j]); m[i] max= l[i,j]; a[i] min= where(l[i,j]==m[i], j, 100000)",
    X="f32[4,10]",
)
POOL_GRADIENT = notation(
    "M[i] max= X[i,r]; D[i,r] = where(X[i,r]==M[i], G[i], 0.0)", X="f32[64,9]", G="f32[64]"
)
WORKLOADS = {
    "a transposed convolution with padding": TRANSPOSED,
    "an argmax of logarithms": ARGMAX_OF_LOG,
    "a gradient of max pooling": POOL_GRADIENT,
    "a count of roots": notation(
        "m[i] max= sqrt(X[i,j]); c[i] += where(sqrt(X[i,j]) == m[i], 1, 0)", X="f32[7,33]"
    ),
    "quantising against the own maximum": notation(
        "m[i] max= abs(X[i,j]); q[i,j] = i8(X[i,j] / m[i] * 127.0)", X="f32[9,40]"
    ),
    "a transposed convolution in two dimensions and groups": notation(
        "O[y,x,g,f] += W[y+1-2*i,x+2-3*k,g,c,f] * I[i,k,g,c]", {"y": 9, "x": 8},
        W="f32[3,5,2,3,4]", I="f32[5,3,2,3]",
    ),
}  # fmt: skip


def cases_of(workload: Workload, trace: Trace, seed: int) -> WorkloadCases:
    return WorkloadCases(Oracle(workload, seed, trace.rewrites))


def special_of(workload: Workload, seed: int = 0) -> SpecialCase:
    case = special_case(workload.normalised(), None, positive=False, seed=seed)
    assert case is not None
    return case


def held(expected: Expected) -> Array:
    everything: Array = np.ones(expected.values.shape, np.bool_)
    return everything if expected.free is None else ~expected.free


def assert_passes(workload: Workload, trace: Trace, bits: int, seed: int) -> None:
    kernel = compile_kernel(workload, trace, this_machine(1, bits))
    for case in cases_of(workload, trace, seed).full():
        shown = Case(InputKind.NORMAL, seed, False, case.inputs, ())
        with np.errstate(all="ignore"):
            problem = case.check(run_kernel(kernel, workload, shown))
        assert problem is None, f"{workload} by {trace.to_json()}: {problem}"


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_full_check_has_no_false_alarm(name: str) -> None:
    workload, rng = WORKLOADS[name].normalised(), random.Random(name)
    target = this_machine(1, 256)
    traces = [default_trace(workload, target)]
    traces += [random_setting(rng, workload, target) for _ in range(3)]
    for seed, trace in enumerate(dict.fromkeys(traces)):
        assert_passes(workload, trace, 256, seed)


@pytest.mark.parametrize("seed", range(30))
def test_random_kernels_of_every_schedule_pass(seed: int) -> None:
    rng = random.Random(seed)
    workload = random_discrete(rng).normalised()
    bits = rng.choice((128, 256, 512))
    target = this_machine(1, bits)
    traces = [default_trace(workload, target), random_setting(rng, workload, target)]
    for trace in dict.fromkeys(traces):
        assert_passes(workload, trace, bits, seed)


@pytest.mark.parametrize("seed", range(100, 130))
def test_whatever_a_right_kernel_is_free_to_do_passes(seed: int) -> None:
    workload = random_discrete(random.Random(seed)).normalised()
    forms = [form.steps for form in (*rewrites_for(workload), regrouped(workload)) if form.steps]
    for rewrites in [(), *forms[:2]]:
        form, _ = start(workload, Trace(tuple(rewrites)))
        for number, case in enumerate(cases_of(workload, Trace(tuple(rewrites)), seed).full()):
            rng = np.random.default_rng((seed, number))
            problem = case.check(liberal_outputs(form, case.inputs, rng))
            assert problem is None, f"{workload} as {rewrites}: {problem}"


def test_little_is_open_that_no_right_kernel_does_otherwise() -> None:
    """Of the elements nothing is said of, nearly all come out in several ways."""
    free, same = 0, 0
    for seed in range(40):
        workload = random_discrete(random.Random(seed)).normalised()
        case = special_case(workload, None, positive=False, seed=seed)
        if case is None:
            continue
        drawn = [
            liberal_outputs(workload, case.inputs, np.random.default_rng((seed, n)))
            for n in range(15)
        ]
        for number, expected in enumerate(case.expected):
            if expected.tensor.dtype.is_narrow_float:
                continue
            classes = [np.nan_to_num(d[number], nan=7, posinf=8, neginf=9) for d in drawn]
            is_class = np.stack([np.where(np.isin(c, (7, 8, 9)), c, 0) for c in classes])
            open_ = ~held(expected)
            free += int(open_.sum())
            same += int((open_ & (is_class == is_class[0]).all(axis=0)).sum())
    assert free > 100
    assert same < 0.3 * free


def test_a_row_that_lost_no_nan_is_held_to_its_gradient() -> None:
    case = special_of(POOL_GRADIENT)
    by_shape = {array.ndim: array for array in case.inputs}
    x, g = by_shape[2], by_shape[1]
    lost = np.isnan(x).any(axis=1)
    assert lost.any()
    (expected,) = case.expected
    open_rows = np.asarray(~held(expected).all(axis=1))
    assert not open_rows[np.isfinite(g) & ~lost].any()
    # Beside a NaN that a maximum may have lost, too: no NaN is equal to anything.
    at_nan = np.isnan(x)
    np.testing.assert_array_equal(expected.values[at_nan], 0)
    assert held(expected)[at_nan].all()


def test_of_a_softmax_with_a_nan_all_of_the_row_is_nan() -> None:
    text = "M[i] max= X[i,j]; E[i,j] = exp(X[i,j] - M[i]); S[i] += E[i,j]; Y[i,j] = E[i,j] / S[i]"
    case = special_of(notation(text, X="f32[50,37]"))
    (x,), (expected,) = case.inputs, case.expected
    assert held(expected).all()
    np.testing.assert_array_equal(np.isnan(expected.values).any(axis=1), ~np.isfinite(
        np.where(x == -np.inf, 0, x)).all(axis=1))  # fmt: skip


def _pool(x: Array, g: Array) -> Array:
    return np.where(x == x.max(axis=1, keepdims=True), g[:, None], np.float32(0))


def _pool_by_fmax(x: Array, g: Array) -> Array:
    return np.where(x == np.fmax.reduce(x, axis=1)[:, None], g[:, None], np.float32(0))


WRONG: dict[str, Callable[[Array, Array], Array]] = {
    "a comparison that takes NaN for equal": lambda x, g: np.where(
        np.isnan(x), g[:, None], _pool(x, g)
    ),
    "the product with a mask": lambda x, g: np.asarray(
        (x == x.max(axis=1, keepdims=True)) * g[:, None]
    ),
    "a maximum that starts from zero": lambda x, g: np.where(
        x == np.maximum(x.max(axis=1, keepdims=True), 0), g[:, None], np.float32(0)
    ),
    "a tap that is left out": lambda x, g: np.where(
        x == x[:, 1:].max(axis=1, keepdims=True), g[:, None], np.float32(0)
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_gradient_is_caught(name: str) -> None:
    def problem(kernel: Callable[[Array, Array], Array]) -> str | None:
        for case in cases_of(POOL_GRADIENT, Trace(()), 0).full():
            by_shape = {array.ndim: array for array in case.inputs}
            with np.errstate(all="ignore"):
                found = case.check([np.asarray(kernel(by_shape[2], by_shape[1]), np.float32)])
            if found is not None:
                return found
        return None

    assert problem(_pool) is None
    assert problem(_pool_by_fmax) is None
    assert problem(WRONG[name]) is not None


def test_integers_are_judged_beside_special_values() -> None:
    workload = notation("q[i] = i32(X[i] * 10.0)", X="f32[64]")
    case = special_of(workload)
    (x,), (expected,) = case.inputs, case.expected
    assert {*expected.values[np.isnan(x)]} == {0}
    assert {*expected.values[x == np.inf]} == {2**31 - 1}
    with np.errstate(all="ignore"):
        right = np.where(np.isnan(x), 0, np.clip(x.astype(np.float64) * 10.0, -(2**31), 2**31 - 1))
    assert case.check([right.astype(np.int32)]) is None
    assert case.check([np.where(np.isnan(x), -(2**31), right).astype(np.int32)]) is not None


def test_truth_values_in_doubt_are_either() -> None:
    tensor = Tensor("q", (2,), DType.BOOL)
    for truth in ([False, False], [True, False]):
        expected = expect(tensor, np.array(truth), np.array([1.0, 0.0]))
        for got in (False, True):
            assert expected.wrong(np.array([got, truth[1]])) is None
            assert expected.wrong(np.array([got, not truth[1]])) is not None


def test_what_has_no_value_for_any_input_cannot_be_verified() -> None:
    for text in ("Y[i] = log(X[i] - 1000.0)", "Y[i] = sqrt(-1.0 - X[i] * X[i])",
                 "Y[i] = 1.0 / (X[i] - X[i])"):  # fmt: skip
        with pytest.raises(WorkloadError, match="cannot be verified") as found:
            _ = Oracle(notation(text, X="f32[32]")).quick
        assert found.value.code == "not_verifiable"


def test_beside_a_side_far_away_the_other_is_within_the_bound() -> None:
    """-1e30 + (1e30 + 1) is 0 in f64; the largest value, computed again, may be below itself."""
    workload = notation(
        "l[i,j] = X[i,j] * sigmoid(X[i,j]); m[i] max= l[i,j];"
        " D[i] max= where(l[i,j] < m[i], l[i,j], -1e30)", X="f32[8,3]",
    ).normalised()  # fmt: skip
    case = Oracle(workload).case(InputKind.NORMAL, 0)
    (x,) = case.inputs
    values = (x / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32)
    assert case.check([np.sort(values, axis=1)[:, -2]]) is None
    assert case.check([values.max(axis=1)]) is None
