"""Divisions by what lanes or iterations share, and where slow values that do not change are
computed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, run_kernel, this_machine
from tests.support.schedules.workloads import notation
from tilewright.schedules.primitives import ComputeAt, Primitive, Reorder, Split, Vectorize
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import compile_kernel, llvm_text
from tilewright.tuner.judge.compare import Case
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.search.default import default_trace

Array = npt.NDArray[Any]


def special(kind: type) -> Array:
    info = np.finfo(kind)
    near = 64 if kind is np.float32 else 512
    return np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 3, info.tiny, info.tiny * 0.9,
         info.smallest_subnormal, 3 * info.smallest_subnormal, info.max, -info.max]
        + [s * 2.0 ** (e + d) for s in (1, -1) for e in (near, -near) for d in (-1, 0, 1)],
        kind,
    )  # fmt: skip


@pytest.mark.parametrize(("dtype", "kind"), [("f32", np.float32), ("f64", np.float64)])
@pytest.mark.parametrize("shared", ["row", "column"])
def test_one_divisor_costs_no_more_than_two_roundings(shared: str, dtype: str, kind: type) -> None:
    """One divisor a row or a column of 2000 dividends or fewer."""
    rng, values = np.random.default_rng(7), special(kind)
    rows, columns = 2000, 32
    bits = np.uint32 if kind is np.float32 else np.uint64
    x: Array = rng.integers(0, np.iinfo(bits).max, (rows, columns), bits, endpoint=True).view(kind)
    t: Array = rng.integers(0, np.iinfo(bits).max, rows, bits, endpoint=True).view(kind)
    x[:, : len(values)], t[: len(values)] = values, values
    shape = f"{rows},{columns}"
    steps: list[Primitive] = [Vectorize("s0.d1")]
    text = "Y[i,j] = X[i,j] / t[i]"
    if shared == "column":
        x, shape, text = np.ascontiguousarray(x.T), f"{columns},{rows}", "Y[j,i] = X[j,i] / t[i]"
        steps = in_columns(8)
    workload = notation(text, X=f"{dtype}[{shape}]", t=f"{dtype}[{rows}]")
    kernel = compile_kernel(workload, Trace(tuple(steps)), this_machine())
    inputs = tuple(x if len(tensor.shape) == 2 else t for tensor in workload.inputs)
    (y,) = run_kernel(kernel, workload, Case(InputKind.NORMAL, 0, False, inputs, ()))
    if shared == "column":
        x, y = x.T, y.T
    with np.errstate(all="ignore"):
        exact = x.astype(np.longdouble) / t[:, None].astype(np.longdouble)
        rounded: Array = exact.astype(kind)
        finite = np.isfinite(rounded) & np.isfinite(y)
        assert (np.isnan(rounded) == np.isnan(y)).all()
        assert (rounded[np.isinf(rounded)] == y[np.isinf(rounded)]).all()
        assert np.isinf(rounded[np.isinf(y)]).all()
        unit = np.spacing(np.abs(rounded[finite])).astype(np.longdouble)
        assert (np.abs(y[finite] - exact[finite]) <= 1.5 * unit).all()


def in_columns(lanes: int) -> list[Primitive]:
    """Vectors of columns outside, rows inside."""
    return [
        Split("s0.d1", lanes), Reorder(("s0.d1o", "s0.d0", "s0.d1i")), Vectorize("s0.d1i")
    ]  # fmt: skip


def body(workload: Workload, *steps: Primitive) -> str:
    return llvm_text(workload, Trace(steps), this_machine(1, 512))


def inner_loop(text: str) -> str:
    """The lines of the innermost loop: from the last label of a loop to its branch back."""
    return re.split(r"\nloop\d+:", text)[-1].split("\ndone")[0]


ROWS = {
    "a quotient": "Y[i,j] = X[i,j] / t[i]",
    "a root": "Y[i,j] = X[i,j] * rsqrt(t[i] / 3.0 + 0.5)",
    "an exponential": "Y[i,j] = X[i,j] + exp(t[i])",
}


@pytest.mark.parametrize("text", ROWS.values(), ids=list(ROWS))
def test_slow_values_of_a_row_are_computed_outside_its_loop(text: str) -> None:
    workload = notation(text, X="f32[5,100]", t="f32[5]")
    steps = (Split("s0.d1", 16), Vectorize("s0.d1i"))
    inside = inner_loop(body(workload, *steps))
    assert "fdiv" not in inside
    assert "@llvm.sqrt" not in inside
    assert "@tw_exp" not in inside
    assert check_pair(Pair("rows", workload, Trace(steps), 1))


@pytest.mark.parametrize("columns", [48, 100])
@pytest.mark.parametrize("text", ROWS.values(), ids=list(ROWS))
def test_slow_values_of_columns_are_computed_outside_the_loop_over_rows(
    text: str, columns: int
) -> None:
    text = text.replace("t[i]", "t[j]")
    workload = notation(text, X=f"f32[5,{columns}]", t=f"f32[{columns}]")
    steps = in_columns(16)
    inside = inner_loop(body(workload, *steps))
    if columns % 16 == 0:  # what may not exist is read where it is guarded
        assert "fdiv" not in inside
        assert "@llvm.sqrt" not in inside
        assert "@tw_exp" not in inside
    assert check_pair(Pair("columns", workload, Trace(tuple(steps)), 1))


def test_what_an_iteration_writes_for_every_lane_is_read_inside_it() -> None:
    workload = notation(
        "T[i,j] = exp(A[i,j]); Y[i,j] = A[i,j] / sqrt(T[i,j])", A="f32[5,16]"
    )  # T of one row is a buffer whose index does not move with the row
    steps = (ComputeAt("s0", "s1.d0"), Vectorize("s0.1"), Vectorize("s1.d1"))
    assert check_pair(Pair("columns", workload, Trace(steps), 1))


def test_what_the_loop_writes_is_read_inside_it() -> None:
    """A running total that later values are divided by: nothing may be taken in advance."""
    workload = notation("S[i] += A[i,j]; Y[i,j] = A[i,j] / S[i]", A="f32[5,32]")
    trace = Trace((Split("s1.d1", 8), Vectorize("s1.d1i")))
    assert check_pair(Pair("rows", workload, trace, 1))


def test_a_divisor_that_may_not_exist_stays_where_it_is_guarded() -> None:
    workload = notation("Y[i,j] = X[i,j] / t[i+2]", {"i": 8, "j": 20}, X="f32[8,20]", t="f32[8]")
    steps = (Split("s0.d1", 8), Vectorize("s0.d1i"))
    assert check_pair(Pair("padded", workload, Trace(steps), 1))


@pytest.mark.parametrize(
    "function", ["{} / 3.0", "{} / exp({} * 0.0)", "{} * sqrt(2.0 + {} * 0.0)"]
)
def test_constants_of_two_types_are_two_values(function: str) -> None:
    """In two types a literal is written the same."""
    first, second = (function.replace("{}", f"{x}[i]") for x in "AB")
    workload = notation(f"Y[i] = {first}; Z[i] = {second}", A="f32[64]", B="f64[64]")
    steps = (Split("s0.d0", 8), Vectorize("s0.d0i"), Split("s1.d0", 8), Vectorize("s1.d0i"))
    check_pair(Pair("two types", workload, Trace(steps), 1))


def test_a_quotient_before_a_floor_is_rounded_once() -> None:
    rows = 240
    workload = notation("Y[i,j] = floor(A[i,j] / t[i])", A=f"f32[{rows},16]", t=f"f32[{rows}]")
    t = np.arange(1, rows + 1, dtype=np.float32)
    a = t[:, None] * np.arange(1, 17, dtype=np.float32)
    kernel = compile_kernel(workload, Trace((Vectorize("s0.d1"),)), this_machine())
    inputs = tuple(a if len(tensor.shape) == 2 else t for tensor in workload.inputs)
    (y,) = run_kernel(kernel, workload, Case(InputKind.NORMAL, 0, False, inputs, ()))
    assert (y == np.arange(1, 17)).all()


@pytest.mark.parametrize(("dtype", "kind"), [("f32", np.float32), ("f64", np.float64)])
@pytest.mark.parametrize("divisor", [3.0, -49.0, 0.1, 1e-20, 7e20, 1.5e-42, 1e38, 64.0, 0.0, -0.0])
def test_a_constant_divides_with_one_rounding(divisor: float, dtype: str, kind: type) -> None:
    """Quotients that are numbers of the type are exact, others within 0.51 ulp."""
    rng = np.random.default_rng(9)
    sizes = rng.integers(-60, 60, 4000)
    with np.errstate(over="ignore"):
        x: Array = np.concatenate([
            np.ldexp(rng.uniform(1, 2, 4000), sizes) * rng.choice([-1, 1], 4000),
            np.arange(-999, 1000) * np.float64(kind(divisor)), special(kind),
        ]).astype(kind)  # fmt: skip
    workload = notation(f"Y[i] = X[i] / {divisor!r}", X=f"{dtype}[{x.size}]")
    steps = (Split("s0.d0", 16), Vectorize("s0.d0i"))
    kernel = compile_kernel(workload, Trace(steps), this_machine())
    (y,) = run_kernel(kernel, workload, Case(InputKind.NORMAL, 0, False, (x,), ()))
    with np.errstate(all="ignore"):
        exact = x.astype(np.longdouble) / np.longdouble(kind(divisor))
        rounded: Array = exact.astype(kind)
        np.testing.assert_array_equal(np.isnan(y), np.isnan(rounded))
        special_values = ~np.isfinite(rounded)
        np.testing.assert_array_equal(y[special_values], rounded[special_values])
        held = np.isfinite(rounded) & (
            np.abs(exact) >= 2.0 ** (-100 if kind is np.float32 else -900)
        )
        number = held & (rounded == exact)
        assert number.sum() >= 4 or not held.any()
        np.testing.assert_array_equal(y[number], rounded[number])
        unit = np.spacing(np.abs(rounded[held])).astype(np.longdouble)
        assert (np.abs(y[held] - exact[held]) <= 0.51 * unit).all()


@pytest.mark.parametrize("value", [3e-45, 1e-42, 1e-40, 1e-38, 1e-20, 1.0, 1e20, 1e30, 3e36])
@pytest.mark.parametrize("text", [
    "S[i] += X[i,j]; Y[i,j] = X[i,j] / S[i]", "S[j] += X[i,j]; Y[i,j] = X[i,j] / S[j]",
])  # fmt: skip
def test_rows_of_any_size_are_normalised(text: str, value: float) -> None:
    """Denormal and huge ones, too: neither the reciprocal nor a product with it leaves the type."""
    workload = notation(text, X="f32[64,64]").normalised()
    x = np.full((64, 64), value, np.float32)
    for bits in (128, 512):
        target = this_machine(1, bits)
        kernel = compile_kernel(workload, default_trace(workload, target), target)
        (y,) = run_kernel(kernel, workload, Case(InputKind.NORMAL, 0, False, (x,), ()))
        # Sixty-three additions and a quotient.
        np.testing.assert_allclose(y, 1 / 64, rtol=64 * 2.0**-24)
