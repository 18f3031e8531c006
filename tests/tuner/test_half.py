"""f16: every number of it, rounding to it, and kernels that hold it, with its instructions and
without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.paths import TARGET_FILES
from tests.support.schedule_fuzz.check import run_kernel, this_machine
from tests.support.tuner.targets import CALL, plain
from tilewright.schedules import Workload, operators
from tilewright.schedules.algebra.narrow import narrowed, round_to, widened
from tilewright.schedules.dtypes import DType
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.primitives import Primitive, Split, Vectorize
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.tuner.emit.kernel import compile_kernel, llvm_text
from tilewright.tuner.emit.object_code import emit_assembly
from tilewright.tuner.judge.compare import Case
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.oracle import Oracle
from tilewright.tuner.kernel import compile as compile_workload
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.search.default import default_trace

Array = npt.NDArray[Any]

EVERY = np.arange(1 << 16, dtype=np.uint16).view(np.float16)


TARGETS = {"native": detect, "plain": plain}


def run(text: str, source: str, x: Array, target: Target, lanes: int) -> Array:
    workload = from_notation(text, {"X": (source, x.shape)})
    steps: tuple[Primitive, ...] = (Split("s0.d0", lanes), Vectorize("s0.d0i"))
    kernel = compile_kernel(workload, Trace(steps if lanes > 1 else ()), target)
    case = Case(InputKind.NORMAL, 0, False, (x,), ())
    (found,) = run_kernel(kernel, workload, case)
    return found


def awkward() -> Array:
    """f32 numbers where rounding to f16 could go wrong: all halves, ties, what is next to both,
    ends and random bits."""
    halves = EVERY[np.isfinite(EVERY)].astype(np.float32)
    ordered = np.sort(halves)
    ties = (ordered[1:] + ordered[:-1]) / 2
    ends = np.array([65504, 65519.996, 65520, 65536, 1e30, 2**-24, 2**-25, 2**-26], np.float32)
    with np.errstate(over="ignore"):
        some = np.concatenate([ordered, ties, ends, -ends, [np.inf, -np.inf, np.nan, 0.0, -0.0]])
        some = some.astype(np.float32)
        near = [
            some,
            np.nextafter(some, np.float32(np.inf)),
            np.nextafter(some, -np.float32(np.inf)),
        ]
    bits = np.random.default_rng(1).integers(0, 1 << 32, 50_000, np.uint32).view(np.float32)
    return np.concatenate([*near, bits])


def assert_same_halves(got: Array, want: Array) -> None:
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint16)[~nan], want.view(np.uint16)[~nan])


def test_arrays_are_rounded_as_numpy_rounds_them() -> None:
    x = awkward()
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64) * (1 + 2.0**-40)  # once, not by way of f32
        for values in (x.astype(np.float64), wide):
            assert_same_halves(narrowed(values, DType.F16), values.astype(np.float16))
            rounded = round_to(values, DType.F16)
            np.testing.assert_array_equal(rounded, values.astype(np.float16).astype(np.float64))
    np.testing.assert_array_equal(widened(EVERY, DType.F16), EVERY.astype(np.float32))


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16])
@pytest.mark.parametrize("name", TARGETS)
def test_kernels_widen_every_half(name: str, lanes: int) -> None:
    found = run("Y[i] = f32(X[i])", "f16", EVERY, TARGETS[name](), lanes)
    np.testing.assert_array_equal(found, EVERY.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(found), np.signbit(EVERY))


@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16])
@pytest.mark.parametrize("name", TARGETS)
def test_kernels_round_to_halves(name: str, lanes: int) -> None:
    x = awkward()
    with np.errstate(all="ignore"):
        want = x.astype(np.float16)
    assert_same_halves(run("Y[i] = f16(X[i])", "f32", x, TARGETS[name](), lanes), want)


WORKLOADS = {
    "product": operators.build("matmul", {"M": 13, "N": 37, "K": 29}, dtype="f16"),
    "row": operators.build("softmax_mn", {"M": 9, "N": 41}, dtype="f16"),
    "elements": from_notation("Y[i] = f16(tanh(X[i]) * 3.0 + X[i])", {"X": ("f16", (301,))}),
    "choice": from_notation("Y[i] = where(i < 7, X[i], 0.1)", {"X": ("f16", (60,))}),
    "copy": from_notation("Y[i,j] = X[j,i]", {"X": ("f16", (33, 20))}),
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))
def test_kernels_of_halves_pass_the_full_check(workload: Workload, name: str) -> None:
    target = TARGETS[name]()
    kernel = compile_kernel(workload, default_trace(workload, target), target)
    for case in Oracle(workload, 1, ()).full():
        assert case.check(run_kernel(kernel, workload, case)) is None


def test_a_wrong_rounding_is_seen() -> None:
    workload = WORKLOADS["elements"]
    for case in Oracle(workload, 1, ()).full():
        (x,) = case.inputs
        with np.errstate(all="ignore"):
            exact = np.tanh(x.astype(np.float64)) * 3 + x.astype(np.float64)
            cut = exact.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
        if case.check([cut.view(np.float32).astype(np.float16)]) is not None:
            return
    raise AssertionError("numbers that are cut off pass for rounded ones")


def test_numpy_halves_go_in_and_out_and_documents_hold_them() -> None:
    workload = WORKLOADS["product"]
    again = Workload.from_json(json.loads(json.dumps(workload.to_json())))
    assert again.key == workload.key
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, t.shape).astype(np.float16) for t in workload.inputs)
    target = this_machine(1, 256)
    found = compile_workload(again, default_trace(again, target), target)(a, b)
    wide = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(found, wide)
    x = np.linspace(-3, 3, 301).astype(np.float16)
    elements = compile_workload(WORKLOADS["elements"], None, target)(x)
    assert isinstance(elements, np.ndarray)
    assert elements.dtype == np.float16
    wanted = np.tanh(x.astype(np.float64)) * 3 + x.astype(np.float64)
    np.testing.assert_allclose(elements.astype(np.float64), wanted, rtol=2**-10)


@pytest.mark.parametrize("path", TARGET_FILES, ids=lambda path: path.stem)
def test_no_target_calls_a_library_to_convert(path: Path) -> None:
    target = Target.from_json(json.loads(path.read_text()))
    for text, source in (("Y[i] = f32(X[i])", "f16"), ("Y[i] = f16(X[i])", "f32")):
        workload = from_notation(text, {"X": (source, (67,))})
        module = llvm_text(workload, default_trace(workload, target), target)
        assert CALL.findall(emit_assembly(module, target)) == []
