"""What is promised of NaN, infinities and signed zeros: the check's case for it, and every function
and implementation (`docs/math.md`, "Special values")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.schedule_fuzz.check import run_kernel, this_machine
from tests.support.schedules.workloads import notation
from tilewright.schedules import operators
from tilewright.schedules.algebra.narrow import narrowed, widened
from tilewright.schedules.dtypes import DType
from tilewright.schedules.primitives import CacheWrite, Primitive, SkipZeros, Split, Vectorize
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.rewrites import PrecomputeFactors
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import compile_kernel
from tilewright.tuner.judge.compare import Case, Expected
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.special_values import SpecialCase, special_case
from tilewright.tuner.search.default import default_trace

Array = npt.NDArray[Any]
Kernel = Callable[..., Array]

RELU = notation("Y[i,j] = max(X[i,j], 0.0)", X="f32[33,65]")
PRODUCT = operators.build("matmul", {"M": 24, "N": 20, "K": 16})
COPY = notation("Y[i,j] = X[j,i]", X="f32[32,48]")
SCALED = notation("Y[i] = where(i < 40, X[i] * -2.0, X[i])", X="f32[90]")
SOFTMAX = operators.build("softmax_mn", {"M": 50, "N": 37})
LARGEST = float(np.finfo(np.float32).max)


def of(workload: Workload, seed: int = 0, positive: bool = False) -> SpecialCase:
    case = special_case(workload.normalised(), None, positive=positive, seed=seed)
    assert case is not None
    return case


def compiled_outputs(
    workload: Workload, inputs: tuple[Array, ...], *steps: Primitive, bits: int = 256
) -> list[Array]:
    target = this_machine(1, bits)
    trace = Trace(steps) if steps else default_trace(workload, target)
    kernel = compile_kernel(workload, trace, target)
    case = Case(InputKind.NORMAL, 0, False, tuple(inputs), ())
    with np.errstate(all="ignore"):
        return list(run_kernel(kernel, workload, case))


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True), np.float32)


# Each answers like the workload on every finite input.
WRONG: dict[str, tuple[Workload, Kernel, Kernel]] = {
    "relu of -inf is NaN": (RELU, lambda x: np.maximum(x, 0), lambda x: x * (x > 0)),
    "relu loses NaN": (RELU, lambda x: np.maximum(x, 0), lambda x: np.fmax(x, np.float32(0))),
    "relu clamps": (
        RELU, lambda x: np.maximum(x, 0), lambda x: np.minimum(np.maximum(x, 0), LARGEST),
    ),
    "a product leaves out zeros of A": (
        PRODUCT, lambda a, b: a @ b,
        lambda a, b: np.where(a[:, :, None] == 0, np.float32(0), a[:, :, None] * b).sum(axis=1),
    ),
    "a product clamps": (
        PRODUCT, lambda a, b: a @ b,
        lambda a, b: np.clip(a, -LARGEST, LARGEST) @ np.clip(b, -LARGEST, LARGEST),
    ),
    "a copy loses the sign of zero": (COPY, lambda x: x.T, lambda x: x.T + np.float32(0)),
    "a copy clamps": (COPY, lambda x: x.T, lambda x: np.clip(x.T, -LARGEST, LARGEST)),
    "softmax takes NaN for nothing": (
        SOFTMAX, _softmax, lambda x: _softmax(np.where(np.isnan(x), -np.inf, x)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_is_right_for_finite_inputs_only_is_seen(name: str) -> None:
    workload, right, wrong = WRONG[name]
    case = of(workload)
    with np.errstate(all="ignore"):
        assert case.check([np.ascontiguousarray(right(*case.inputs))]) is None
        problem = case.check([np.ascontiguousarray(wrong(*case.inputs))])
        assert problem is not None
        assert "expected" in problem


STEPS = (Split("s0.d0", 8), Split("s0.d0i", 2))


def judged(expected: Expected) -> Array:
    """Which elements are held to something."""
    everything = np.ones(expected.values.shape, np.bool_)
    return everything if expected.free is None else ~expected.free


@pytest.mark.parametrize("workload", [PRODUCT, COPY, SCALED], ids=["product", "copy", "scaled"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_all_is_promised_where_nothing_may_be_lost(workload: Workload, seed: int) -> None:
    case = of(workload, seed)
    (expected,) = case.expected
    assert judged(expected).all()
    assert {np.inf, -np.inf} <= set(expected.values.reshape(-1))
    assert 0 < np.isnan(expected.values).mean() <= 0.5
    assert case.check(compiled_outputs(workload, case.inputs, *STEPS)) is None


def test_a_maximum_of_computed_values_may_lose_a_nan() -> None:
    """Either operand: so even which number remains is open."""
    workload = notation("Y[i] max= X[i,j]", X="f32[64,20]")
    case = of(workload)
    (x,) = case.inputs
    open_rows = np.isnan(x).any(axis=1)
    np.testing.assert_array_equal(judged(case.expected[0]), ~open_rows)


def test_products_with_padding_are_not_promised() -> None:
    text = "Y[i] += X[i+r-1] * W[r]"
    workload = notation(text, {"i": 40}, X="f32[40]", W="f32[17]")
    case = of(workload)
    x, w = case.inputs
    if x.size < w.size:
        x, w = w, x
    assert not judged(case.expected[0]).all() or np.isfinite(w).all()
    assert case.check(compiled_outputs(workload, case.inputs)) is None


PADDED = {
    "bf16": operators.build("conv1d_nlc", {
        "N": 1, "L": 40, "CI": 3, "CO": 8, "K": 17, "pad": 8, "dtype": "bf16",
    }),
    "f16": operators.build("conv1d_nlc", {
        "N": 1, "L": 40, "CI": 3, "CO": 8, "K": 17, "pad": 8, "dtype": "f16",
    }),
    "a sum of two": notation(
        "Y[i] += (X[i+r-1] - Z[i+r-1]) * W[r]", {"i": 40}, X="f32[40]", Z="f32[40]", W="f32[17]"
    ),
    "a magnitude, negated": notation(
        "Y[i] += W[r] * -abs(X[i+r-1])", {"i": 40}, X="f32[40]", W="f32[17]"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PADDED)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_kernels_that_leave_padding_out_are_right(name: str, seed: int) -> None:
    """Wherever a primitive finds padding, through conversions and sums, so does the check."""
    workload = PADDED[name].normalised()
    steps = (CacheWrite("s0", "s0.d0", "acc", register=False), SkipZeros("acc"))
    case = of(workload, seed)
    assert case.check(compiled_outputs(workload, case.inputs)) is None
    assert case.check(compiled_outputs(workload, case.inputs, *steps)) is None


def test_a_difference_that_rounding_decides_is_not_promised() -> None:
    """(x - mean) is zero where all of a row are equal, or nearly: times infinity it is anything."""
    text = "m[i] += X[i,j] * 0.25; Y[i,j] = (X[i,j] - m[i]) * Z[j]"
    workload = notation(text, X="f32[40,4]", Z="f32[4]").normalised()
    case = of(workload)
    assert case.check(compiled_outputs(workload, case.inputs)) is None


def test_a_rewritten_form_is_held_to_what_both_forms_keep() -> None:
    workload = notation(
        "C[i,j] += A[i,k] * d[k] * B[k,j]", A="f32[16,32]", d="f32[32]", B="f32[32,40]"
    ).normalised()
    form = PrecomputeFactors("s0", (0, 1)).rewrite(workload)
    case = special_case(workload, form, positive=False, seed=0)
    assert case is not None
    values = evaluate(form, case.inputs)
    assert case.check([v.astype(np.float32) for v in values]) is None


def test_a_factor_that_stays_in_its_sum_shows_in_the_reference() -> None:
    """inf * 1 + inf * -2 is NaN; taken out of the sum it would be -inf."""
    workload = notation("Y[i,j] += a[j] * X[j,k]", {"i": 3}, a="f32[4]", X="f32[4,2]")
    a = np.array([np.inf, 1, -np.inf, 2], np.float32)
    x = np.array([[1, -2]] * 4, np.float32)
    by_name = {"a": a, "X": x}
    normal = workload.normalised()
    inputs = [by_name["a"] if len(t.shape) == 1 else by_name["X"] for t in normal.inputs]
    (y,) = evaluate(normal, inputs)
    np.testing.assert_array_equal(y, np.tile([np.nan, -1, np.nan, -2], (3, 1)))


def test_what_leaves_its_type_by_itself_is_held_to_nothing() -> None:
    workload = notation("Y[i] = exp(X[i] * 1000.0)", X="f32[64]").normalised()
    (expected,) = of(workload).expected
    (x,) = of(workload).inputs
    np.testing.assert_array_equal(judged(expected), ~(np.isfinite(x) & (x > 0)))
    too_large = notation("Y[i] = X[i] * 1e30 * 1e30", X="f32[8]").normalised()
    assert special_case(too_large, None, positive=True, seed=0) is None


def test_there_is_no_such_case_of_integers() -> None:
    whole = notation("Y[i] += X[i,j]", X="i32[8,8]").normalised()
    assert special_case(whole, None, positive=False, seed=0) is None


# --- every function, at every width and for every instruction set --------------------------------

INF, NAN = np.inf, np.nan
VALUES = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5]
FUNCTIONS = [
    "X[i] + Z[i]", "X[i] - Z[i]", "X[i] * Z[i]", "X[i] / Z[i]", "X[i] / Z[3]", "X[i] / 3.0",
    "-X[i]", "abs(X[i])", "max(X[i], 0.0)", "max(0.0, X[i])", "min(X[i], 1.0)",
    "min(max(X[i], 0.0), 6.0)", "where(X[i] < Z[i], X[i], Z[i])", "where(X[i] == Z[i], 1.0, X[i])",
    "where(X[i] != X[i], 5.0, X[i])", "where(X[i] <= 0.0, X[i] * 0.1, X[i])",
    "exp(X[i])", "log(X[i])", "sqrt(X[i])", "rsqrt(X[i])", "tanh(X[i])", "erf(X[i])",
    "sigmoid(X[i])", "floor(X[i])", "ceil(X[i])", "trunc(X[i])", "round(X[i])", "expm1(X[i])",
    "log1p(X[i])", "cos(X[i])", "X[i] * sigmoid(X[i])", "f64(X[i])", "bf16(X[i])",
    "i32(X[i])", "i8(X[i])", "u8(X[i])", "tan(X[i])", "atan(X[i])", "sinh(X[i])", "cosh(X[i])",
    "asinh(X[i])", "acosh(X[i])", "asin(X[i])", "acos(X[i])", "atanh(X[i])", "exp2(X[i])",
    "log2(X[i])", "log10(X[i])", "cbrt(X[i])", "softplus(X[i])", "sign(X[i])", "X[i] ** Z[i]",
    "pow(X[i], 3.5)", "atan2(X[i], Z[i])",
]  # fmt: skip


@pytest.mark.parametrize("bits", [128, 256, 512])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_every_operation_on_special_values(dtype: str, bits: int) -> None:
    """All pairs of values; NaN, infinities and signs of zeros as in the reference."""
    x, z = (a.reshape(-1) for a in np.meshgrid(VALUES, VALUES))
    n = x.size
    texts = [text for text in FUNCTIONS if f"= {dtype}(" not in f"= {text}"]
    program = "; ".join(f"Y{n}[i] = {text}" for n, text in enumerate(texts))
    workload = notation(program, X=f"{dtype}[{n}]", Z=f"{dtype}[{n}]").normalised()
    stored = {t.name: _stored(t.dtype, v) for t, v in zip(workload.inputs, (x, z), strict=True)}
    inputs = tuple(stored[t.name] for t in workload.inputs)
    for lanes in (1, 3, 16):
        steps = [
            step
            for k in range(len(workload.stages))
            for step in (Split(f"s{k}.d0", lanes), Vectorize(f"s{k}.d0i"))
        ]
        outputs = compiled_outputs(workload, inputs, *steps, bits=bits)
        for tensor, output, want in zip(
            workload.output_tensors, outputs, evaluate(workload, inputs), strict=True
        ):
            got = widened(output, tensor.dtype)
            np.testing.assert_allclose(got, want, rtol=0.02, err_msg=f"{tensor.name} of {texts}")
            zero = want == 0
            np.testing.assert_array_equal(
                np.signbit(got[zero]), np.signbit(want[zero]), err_msg=f"{tensor.name} of {texts}"
            )


def _stored(dtype: DType, values: Array) -> Array:
    return narrowed(values, dtype)
