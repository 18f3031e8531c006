"""Numbers of compiled kernels: types, casts, masks, gathers, reductions across lanes, threads."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.schedule_fuzz.check import Pair, check_pair, run_kernel, this_machine
from tests.support.schedules.workloads import bias_relu, matmul, notation
from tilewright.schedules.algebra.functions import NAMED
from tilewright.schedules.primitives import (
    CacheRead,
    CacheWrite,
    ComputeAt,
    Parallel,
    Primitive,
    Reorder,
    Split,
    Unroll,
    Vectorize,
)
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import compile_kernel, llvm_text
from tilewright.tuner.judge.compare import Case
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.oracle import Oracle

Array = npt.NDArray[Any]


def agree(workload: Workload, *steps: Primitive, threads: int = 1, kinds: str = "") -> None:
    """Interpreter, kernel and NumPy agree on the quick case, and the kernel on more `kinds`."""
    trace = Trace(steps)
    assert check_pair(Pair("steps", workload, trace, threads))
    kernel = compile_kernel(workload, trace, this_machine(threads))
    for kind in kinds.split():
        case = Oracle(workload).case(InputKind(kind), 3)
        assert case.check(run_kernel(kernel, workload, case)) is None


def computed(workload: Workload, inputs: list[Array], *steps: Primitive) -> list[Array]:
    """The outputs of the compiled kernel for these inputs."""
    kernel = compile_kernel(workload, Trace(steps), this_machine())
    return run_kernel(kernel, workload, Case(InputKind.NORMAL, 0, False, tuple(inputs), ()))


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 5, 8, 16, 32, 64])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i64", "i32", "i8", "u8", "bf16"])
def test_every_type_in_vectors_of_any_width(dtype: str, lanes: int) -> None:
    mixed = notation("Y[i] = max(A[i] * B[i], A[i] - 3)", A=f"{dtype}[67]", B=f"{dtype}[67]")
    agree(mixed, Split("s0.d0", lanes), Vectorize("s0.d0i"), kinds="extremes normal")


@pytest.mark.parametrize("lanes", [2, 3, 4, 5, 6, 8, 12, 16, 32, 64])
@pytest.mark.parametrize("assign", ["+=", "*=", "max=", "min="])
def test_reductions_across_lanes(assign: str, lanes: int) -> None:
    for dtype in ("f32", "i32", "i8"):
        reduced = notation(f"C[i] {assign} A[i,k]", A=f"{dtype}[3,{2 * lanes + 1}]")
        agree(reduced, Split("s0.r0", lanes), CacheWrite("s0", "s0.d0", "w"), Vectorize("s0.r0i"))


def test_integers_wrap_and_do_so_in_vectors() -> None:
    for dtype, kind in (("i32", np.int32), ("i64", np.int64)):
        square = notation("Y[i] = A[i] * A[i] + A[i]", A=f"{dtype}[9]")
        values: Array = np.array([2**31 - 1, -(2**31), 46341, -1, 0, 3, 2**30, -(2**30), 7], kind)
        for steps in ((), (Split("s0.d0", 8), Vectorize("s0.d0i"))):
            with np.errstate(over="ignore"):
                (got,) = computed(square, [values], *steps)
                assert (got == values * values + values).all()


@pytest.mark.parametrize("to", ["i8", "u8", "i32", "i64"])
def test_floats_saturate_when_they_become_integers(to: str) -> None:
    values = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 127.9, -128.9, 255.5, -0.5], "f4")
    limits = np.iinfo({"i8": "i1", "u8": "u1", "i32": "i4", "i64": "i8"}[to])
    expected = [
        0 if np.isnan(v) else int(min(max(float(v), limits.min), limits.max)) if np.isfinite(v)
        else (limits.max if v > 0 else limits.min)
        for v in values
    ]  # fmt: skip
    for steps in ((), (Split("s0.d0", 8), Vectorize("s0.d0i"))):
        (got,) = computed(notation(f"Y[i] = {to}(A[i])", A="f32[9]"), [values], *steps)
        assert [int(g) for g in got] == expected


def test_bf16_rounds_to_nearest_even_and_keeps_nan() -> None:
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F800001, 0xFF800000, 0x7F7FFFFF], "u4")
    (got,) = computed(
        notation("Y[i] = bf16(A[i])", A="f32[6]"), [bits.view("f4")], Vectorize("s0.d0")
    )
    assert [int(g) for g in got[:3]] == [0x3F80, 0x3F82, 0x3F81]
    assert (int(got[3]) & 0x7F80) == 0x7F80
    assert int(got[3]) & 0x7F
    assert int(got[4]) == 0xFF80
    assert int(got[5]) == 0x7F80


@pytest.mark.parametrize(
    ("value", "loads", "is_masked"),
    [
        ("where(X[i] > 0, X[i], 0.01 * X[i]) + Z[i]", 2, False),
        ("where(X[i] > 0, Z[i], exp(X[i])) + where(Z[i] > 0, 1, tanh(X[i]))", 2, False),
        ("where(i < 4, Z[i], X[i-4])", 2, True),  # of Z in the first vector, of X in the others
    ],
)
def test_alternatives_share_loads_that_are_inside_anyway(
    value: str, loads: int, is_masked: bool
) -> None:
    """A load that depended on the condition would not be the load beside the condition, and so
    would whatever is computed from it."""
    workload = notation(f"Y[i] = {value}", X="f32[64]", Z="f32[64]").normalised()
    steps = (Split("s0.d0", 16), Vectorize("s0.d0i"))
    text = llvm_text(workload, Trace(steps), this_machine())
    assert text.count("= load <16 x float>") == loads
    assert ("@llvm.masked.load" in text) == is_masked
    agree(workload, *steps, kinds="normal")


@pytest.mark.parametrize("n", [1, 7, 8, 9, 31, 33])
def test_masked_tails(n: int) -> None:
    steps = (Split("s0.d1", 8), Reorder(("s0.d0", "s0.d1o", "s0.r0", "s0.d1i")),
             Vectorize("s0.d1i"), CacheWrite("s0", "s0.d1o", "w"))  # fmt: skip
    agree(matmul(5, n, 6), *steps)
    agree(matmul(5, n, 6, "f64"), *steps)
    agree(matmul(5, n, 6, "i32"), *steps)


@pytest.mark.parametrize(
    "index", ["2*i", "8-i", "i//2", "i%3", "3*i-4", "(i+2)//3", "0", "i+1"]
)  # fmt: skip
def test_gathers_strides_and_reads_outside(index: str) -> None:
    gathered = notation(f"Y[i,j] = X[{index}, j] + X[j, {index}]", {"i": 9, "j": 9}, X="f32[9,9]")
    for loop in ("s0.d0", "s0.d1"):
        other = {"s0.d0": "s0.d1", "s0.d1": "s0.d0"}[loop]
        agree(gathered, Split(loop, 8), Reorder((other, f"{loop}o", f"{loop}i")),
              Vectorize(f"{loop}i"))  # fmt: skip


def test_scattered_writes_with_and_without_a_mask() -> None:
    moved = notation("Y[i,j] = X[j,i] * 2", {"i": 9, "j": 8}, X="f32[8,9]")
    agree(moved, Reorder(("s0.d1", "s0.d0")), Vectorize("s0.d0"))
    agree(moved, Split("s0.d0", 4), Reorder(("s0.d0o", "s0.d1", "s0.d0i")), Vectorize("s0.d0i"))


@pytest.mark.parametrize(
    "condition",
    ["i >= j", "i + j < 9", "i%2 == 0", "i == j", "X[i,j] > 0", "X[i,j] > 0 && i < 5", "j < 3"],
)
def test_only_the_side_a_select_takes_is_read(condition: str) -> None:
    text = f"Y[i,j] = where({condition}, X[i+3, j] * V[i], V[j] + 1)"
    chosen = notation(text, {"i": 9, "j": 9}, X="f32[9,9]", V="f32[9]")
    for steps in (
        (Vectorize("s0.d1"),),
        (Split("s0.d1", 4), Vectorize("s0.d1i")),
        (Reorder(("s0.d1", "s0.d0")), Vectorize("s0.d0")),
        (Unroll("s0.d1"),),
    ):
        agree(chosen, *steps)


@pytest.mark.parametrize("function", NAMED)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_functions_in_scalars_vectors_and_tails(function: str, dtype: str) -> None:
    mapped = notation(f"Y[i] = {function}(A[i])", A=f"{dtype}[37]")
    for steps in ((), (Split("s0.d0", 8), Vectorize("s0.d0i"))):
        agree(mapped, *steps, kinds="special")


def test_clipping_keeps_nan() -> None:
    clipped = notation("Y[i] = min(max(A[i], 0), 6)", A="f32[8]")
    values = np.array([np.nan, -1, 3, 9, np.inf, -np.inf, 6, 0], "f4")
    for steps in ((), (Vectorize("s0.d0"),)):
        (got,) = computed(clipped, [values], *steps)
        assert np.array_equal(got, np.clip(values, 0, 6), equal_nan=True)


def test_mixed_widths_share_a_vector_loop() -> None:
    quantised = notation("C[i,j] += i32(A[i,k]) * i32(B[k,j])", A="u8[5,7]", B="i8[7,19]")
    agree(
        quantised, Split("s0.d1", 8), Reorder(("s0.d1o", "s0.r0", "s0.d1i")), Vectorize("s0.d1i"),
        CacheWrite("s0", "s0.d1o", "w"), kinds="extremes",
    )  # fmt: skip


def test_registers_that_do_not_line_up_are_kept_in_memory() -> None:
    staged = notation("T[i] = A[i] * 2; Y[i] = T[i] + 1", A="f32[12]")
    agree(
        staged, Split("s1.d0", 12), ComputeAt("s0", "s1.d0o", True), Split("s0.0", 4),
        Vectorize("s0.0i"), Unroll("s0.0o"), Split("s1.d0i", 3), Vectorize("s1.d0ii"),
        Unroll("s1.d0io"),
    )  # fmt: skip


def test_threads_share_the_whole_output() -> None:
    agree(bias_relu(13, 17, 7), Parallel("s0.d0"), Parallel("s1.d0"), threads=2)
    agree(matmul(3, 17, 7), Split("s0.d1", 5), Reorder(("s0.d1o", "s0.d0")), Parallel("s0.d1o"),
          threads=2)  # fmt: skip
    agree(matmul(4, 6, 7), Parallel("s0.d1"), threads=2)  # entered once for each row
    agree(matmul(4, 6, 7), Parallel("s0.d1"), Unroll("s0.d0"), threads=2)
    agree(matmul(1, 1, 7), Parallel("s0.d0"), threads=2)


NESTED = """
import ctypes, sys
import numpy as np
from tilewright.schedules.primitives import Parallel
from tilewright.schedules.trace import Trace
from tests.support.schedules.workloads import matmul
from tests.support.schedule_fuzz.check import run_kernel, this_machine
from tilewright.tuner.emit.kernel import compile_kernel
from tilewright.tuner.judge.oracle import Oracle
workload = matmul(13, 6, 5)
kernel = compile_kernel(workload, Trace((Parallel("s0.d0"),)), this_machine(2))
case = Oracle(workload).quick
problems = []
if sys.argv[1] == "nested":
    region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(
        lambda _: problems.append(case.check(run_kernel(kernel, workload, case)))
    )
    ctypes.CDLL("libgomp.so.1").GOMP_parallel(region, None, 1, 0)
else:
    problems.append(case.check(run_kernel(kernel, workload, case)))
print(problems)
"""


@pytest.mark.parametrize("threads", ["1", "2", "3"])
@pytest.mark.parametrize("caller", ["plain", "nested"])
def test_a_limited_or_nested_caller_gets_the_whole_output(threads: str, caller: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", NESTED, caller],
        capture_output=True, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": threads, "OMP_THREAD_LIMIT": threads},
    )  # fmt: skip
    assert ended.stdout.strip() == "[None]"


def test_the_text_says_nothing_of_names() -> None:
    named = notation("Zed[q,w] += Aa[q,e] * Bb[e,w]", Aa="f32[7,5]", Bb="f32[5,6]")
    steps = Trace((Split("s0.d0", 2),))
    machine = this_machine()
    assert llvm_text(named, steps, machine) == llvm_text(matmul(), steps, machine)


@pytest.mark.parametrize("steps", [(), (Vectorize("s0.d0"),), (CacheRead("i0", "", "copy"),)])
def test_a_zero_on_the_other_side_of_a_choice_keeps_its_sign(steps: tuple[Primitive, ...]) -> None:
    x: Array = np.arange(1, 11, dtype=np.float32)
    for other, negative in (("-0.0", True), ("0.0", False), ("0", False)):
        text = f"Y[i] = where(i >= 1 && i < 9, X[i - 1], {other})"
        (y,) = computed(notation(text, {"i": 11}, X="f32[10]"), [x], *steps)
        assert np.signbit(y).tolist() == [negative, *[False] * 8, negative, negative]


TWICE = "where(X[i] > 20.0, X[i], log1p(exp(min(X[i], 20.0))))"


def test_a_statement_computes_equal_operations_once() -> None:
    inner = f"(X[i] * tanh({TWICE}))"
    workload = notation(f"Y[i] = {inner} * tanh({TWICE.replace('X[i]', inner)})", X="f32[64]")
    steps = (Split("s0.d0", 16), Vectorize("s0.d0i"))
    body = llvm_text(workload, Trace(steps), this_machine()).split("define i32 @kernel")[1]
    for name in ("exp", "log1p", "tanh"):
        assert body.count(f"@tw_{name}_f32x16(") == 2, name
    agree(workload, *steps, kinds="normal special")


def test_conditions_keep_equal_operations_apart() -> None:
    """Lanes of a masked statement, and unrolled copies, have operands of their own."""
    text = "Y[i] = where(i < 40, exp(X[i]) + exp(X[i]) * B[i], 0.0) + where(i > 9, exp(X[i]), B[i])"
    workload = notation(text, X="f32[61]", B="f32[61]")
    steps = (Split("s0.d0", 32), Split("s0.d0i", 8), Unroll("s0.d0io"), Vectorize("s0.d0ii"))
    agree(workload, *steps, kinds="normal special")


@pytest.mark.parametrize("to", ["i8", "u8", "i32", "i64", "bool"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_vectors_of_floats_become_integers_as_single_floats_do(dtype: str, to: str) -> None:
    """Truncated and clamped, NaN as 0, at every bound of the types and beside it."""
    bounds = [0.0, 1.0, 127.0, 128.0, 255.0, 256.0, 2.0**31, 2.0**32, 2.0**53, 2.0**63, 2.0**64]
    near = [float(np.nextafter(np.float32(x), s)) for x in bounds for s in (-np.inf, np.inf)]
    wide = [float(np.nextafter(x, s)) for x in bounds for s in (-np.inf, np.inf)]
    fractions = [x + y for x in bounds for y in (-0.5, 0.5, -0.999, 0.999)]
    values = [*bounds, *near, *wide, *fractions, 1e30, np.inf, 1e-40]
    values = [sign * x for x in values for sign in (1, -1)] + [np.nan] * 3
    values += [0.5] * (-len(values) % 16)
    workload = notation(f"Y[i] = {to}(X[i])", X=f"{dtype}[{len(values)}]")
    inputs: list[Array] = [np.asarray(values, dtype.replace("f", "float"))]
    (want,) = evaluate(workload, inputs)
    for lanes in (1, 4, 8, 16):
        steps = (Split("s0.d0", lanes), Vectorize("s0.d0i"))
        (got,) = computed(workload, inputs, *steps)
        np.testing.assert_array_equal(got, np.asarray(want, got.dtype))
