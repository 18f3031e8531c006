"""Kernels as Python callables: right results, and a clear word about arrays that do not fit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from tests.support.schedules.workloads import notation
from tilewright.schedules import operators
from tilewright.schedules.primitives import Parallel
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.computation import with_constants
from tilewright.tuner import compile
from tilewright.tuner.kernel import CallError, Kernel
from tilewright.tuner.machine.native_target import native_target


def matmul_kernel(**sizes: int):  # type: ignore[no-untyped-def]
    workload = operators.build("matmul", sizes)
    return compile(workload, target=native_target(probe=False))


def test_a_kernel_computes_into_the_array_it_is_given(rng: np.random.Generator) -> None:
    kernel = matmul_kernel(M=13, N=17, K=7)
    a = rng.integers(-4, 5, (13, 7)).astype(np.float32)
    b = rng.integers(-4, 5, (7, 17)).astype(np.float32)
    c = np.full((13, 17), np.nan, np.float32)
    assert kernel(a, b, out=c) is c
    np.testing.assert_array_equal(c, a @ b)
    np.testing.assert_array_equal(kernel(a, b), a @ b)


def test_a_parallel_trace_runs_on_openmp(rng: np.random.Generator) -> None:
    workload = operators.build("elementwise_add_relu", {"M": 33, "N": 65})
    target = native_target(probe=False)
    kernel = compile(workload, Trace((Parallel("s0.d0"),)), target)
    a, b = (rng.standard_normal((33, 65)).astype(np.float32) for _ in range(2))
    np.testing.assert_array_equal(kernel(a, b), np.maximum(a + b, 0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda a, b: (a,), "takes 2 inputs, got 1"),
        (lambda a, b: (a.astype(np.float64), b), r"A: takes float32\[4, 5\], got float64"),
        (lambda a, b: (a, b[:4]), r"B: takes float32\[5, 6\], got float32\[4, 6\]"),
        (lambda a, b: (np.asfortranarray(a), b), "A: must be C-contiguous"),
        (lambda a, b: (a.tolist(), b), "A: takes a NumPy array .* got list"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arguments, message: str) -> None:  # type: ignore[no-untyped-def]
    kernel = matmul_kernel(M=4, N=6, K=5)
    a, b = np.zeros((4, 5), np.float32), np.zeros((5, 6), np.float32)
    with pytest.raises(CallError, match=message):
        kernel(*arguments(a, b))


def test_an_output_may_not_overlap_an_input() -> None:
    kernel = matmul_kernel(M=4, N=4, K=4)
    a = np.zeros((4, 4), np.float32)
    with pytest.raises(CallError, match="overlap"):
        kernel(a, a.copy(), out=a)


@pytest.mark.parametrize("out", [5, "c", b"c", 1.5, {"c": 1}])
def test_an_out_that_is_no_array_is_refused(out: object) -> None:
    kernel = matmul_kernel(M=4, N=4, K=4)
    a = np.zeros((4, 4), np.float32)
    with pytest.raises(CallError, match=f"out: takes a NumPy array, got {type(out).__name__}"):
        kernel(a, a, out=out)


def test_several_outputs_are_asked_for_as_several() -> None:
    workload = notation("S[i] += X[i,j]; M[i] max= X[i,j]", X="f32[3,4]")
    kernel = compile(workload, target=native_target(probe=False))
    x = np.zeros((3, 4), np.float32)
    with pytest.raises(CallError, match="out: takes a sequence of 2 NumPy arrays, got int"):
        kernel(x, out=5)  # type: ignore[arg-type]
    with pytest.raises(CallError, match=r"takes a NumPy array .* got int"):
        kernel(x, out=[1, 2])  # type: ignore[list-item]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_masked_array_is_refused(place: int) -> None:
    kernel = matmul_kernel(M=4, N=4, K=4)
    arrays = [np.zeros((4, 4), np.float32) for _ in range(3)]
    arrays[place] = np.ma.masked_array(arrays[place], mask=np.eye(4, dtype=bool))
    with pytest.raises(CallError, match=r"is a masked array.*\.filled\(value\)"):
        kernel(*arrays[:2], out=arrays[2])


@pytest.mark.parametrize("prepacked", [False, True])
def test_threads_may_call_one_kernel_at_once(prepacked: bool) -> None:
    """What is between two stages lies in the workspace: calls that shared one would mix theirs."""
    n = 64
    built = notation(
        "T[i,j] += A[i,k] * B[k,j]; C[i,j] += T[i,k] * B[k,j]", A=f"f32[{n},{n}]", B=f"f32[{n},{n}]"
    )
    workload = with_constants(built, ["B"]) if prepacked else built
    made = compile(workload, Trace(()), native_target(probe=False))
    assert made.compiled.workspace_bytes
    rng = np.random.default_rng(3)
    b = rng.integers(-4, 5, (n, n)).astype(np.float32)
    call = made.prepack(b) if prepacked else partial(_swapped, made, b)
    lefts = [rng.integers(-4, 5, (n, n)).astype(np.float32) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(call, lefts * 20))
    for number, c in enumerate(found):
        np.testing.assert_array_equal(c, lefts[number % 4] @ b @ b)


def _swapped(kernel: Kernel, b: np.ndarray, a: np.ndarray) -> object:
    return kernel(a, b)
