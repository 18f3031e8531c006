"""pow and atan2: accuracy, special values, every lane count, and no call of libm."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from llvmlite import binding as llvm

from tests.support.paths import TARGET_FILES
from tests.support.schedules.workloads import notation
from tests.support.tuner.math_accuracy import CPUS, Array, plainer, ulps
from tests.support.tuner.targets import CALL
from tilewright.schedules.algebra.binary_functions import BinaryFunction
from tilewright.schedules.algebra.scalar import NAMED_PAIRS, BinaryOp
from tilewright.schedules.dtypes import DType
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.tuner.codegen.mathlib import MathFunction, function_of_two
from tilewright.tuner.emit.kernel import assembly_text
from tilewright.tuner.emit.object_code import emit_assembly, optimised
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.machine.x86_levels import level_target

OPS = list(NAMED_PAIRS.values())
WIDTHS = [DType.F32, DType.F64]


def row(op: BinaryOp) -> BinaryFunction:
    assert op.function is not None
    return op.function


def module_text(function: MathFunction, dtype: DType, lanes: int) -> str:
    """A module with `void kernel(x, y, out, vectors)` that maps `function` over two arrays."""
    element = "float" if dtype is DType.F32 else "double"
    vector = f"<{lanes} x {element}>" if lanes > 1 else element
    return f"""
{function.text}
define void @kernel(ptr noalias %x, ptr noalias %y, ptr noalias %out, i64 %vectors) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %px = getelementptr {vector}, ptr %x, i64 %i
  %py = getelementptr {vector}, ptr %y, i64 %i
  %pz = getelementptr {vector}, ptr %out, i64 %i
  %a = load {vector}, ptr %px, align {dtype.bytes}
  %b = load {vector}, ptr %py, align {dtype.bytes}
  %z = call {vector} @{function.name}({vector} %a, {vector} %b)
  store {vector} %z, ptr %pz, align {dtype.bytes}
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %vectors
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


@cache
def compiled(
    op: BinaryOp, dtype: DType, lanes: int, cpu: str = ""
) -> Callable[[Array, Array], Array]:
    target = plainer(cpu) if cpu else detect()
    module = optimised(module_text(function_of_two(op, dtype, lanes), dtype, lanes), target)
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=",".join(f"+{f}" for f in target.features), opt=3, jit=True
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(
        engine.get_function_address("kernel")
    )

    def run(x: Array, y: Array) -> Array:
        assert engine is not None  # keeps the code alive as long as this function
        assert x.dtype == y.dtype == dtype.numpy
        out = np.full_like(x, 123.0)
        kernel(x.ctypes.data, y.ctypes.data, out.ctypes.data, x.size // lanes)
        return out

    return run


def sweep(dtype: DType, count: int = 16_000) -> tuple[Array, Array]:
    """Pairs of bit patterns, of moderate numbers and integers, and powers near the ends of the
    range, with bases of every size and next to 1."""
    rng = np.random.default_rng(20261127)
    whole = 32 if dtype is DType.F32 else 64
    most = float(np.log(np.finfo(np.float32 if dtype is DType.F32 else np.float64).max))

    def bits() -> Array:
        drawn = rng.integers(0, 2**64 - 1, count, np.uint64) >> np.uint64(64 - whole)
        return drawn.astype(f"uint{whole}").view(dtype.numpy)

    huge = np.exp(rng.uniform(-most, most, count))
    near = 1 + rng.standard_normal(count) * np.exp(rng.uniform(-30, -1, count))
    x = [bits(), rng.uniform(0, 5, count), huge, near, rng.standard_normal(count),
         np.rint(rng.uniform(-9, 9, count))]  # fmt: skip
    y = [bits(), rng.uniform(-30, 30, count), rng.uniform(-1.02, 1.02, count) * most / np.log(huge),
         rng.uniform(-1, 1, count) * most / np.log(np.abs(near)), rng.standard_normal(count),
         np.rint(rng.uniform(-20, 20, count))]  # fmt: skip
    with np.errstate(over="ignore", invalid="ignore"):
        return np.concatenate(x).astype(dtype.numpy), np.concatenate(y).astype(dtype.numpy)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no wider float to compare with")
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("op", OPS)
def test_error_is_below_the_stated_bound(op: BinaryOp, dtype: DType, cpu: str) -> None:
    x, y = sweep(dtype)
    got = compiled(op, dtype, 8 if dtype is DType.F32 else 4, cpu)(x, y)
    wide = np.float64 if dtype is DType.F32 else np.longdouble
    with np.errstate(all="ignore"):
        want = row(op).values(np, x.astype(wide), y.astype(wide))
        rounded = want.astype(dtype.numpy)
    finite = np.isfinite(got) & np.isfinite(rounded)
    np.testing.assert_array_equal(got[~finite], rounded[~finite])
    stated = row(op).stated_ulps[0 if dtype is DType.F32 else 1]
    assert ulps(got[finite], want[finite], dtype).max() <= stated


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("op", OPS)
def test_special_values(op: BinaryOp, dtype: DType, cpu: str) -> None:
    x, y, want = (np.array(column, dtype.numpy) for column in zip(*row(op).special, strict=True))
    got = compiled(op, dtype, 1, cpu)(x, y)
    if op is BinaryOp.ATAN2:
        np.testing.assert_allclose(got, want, rtol=1e-6)
    else:
        np.testing.assert_array_equal(got, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("op", OPS)
def test_every_lane_count_gives_the_same_bits(op: BinaryOp, dtype: DType) -> None:
    rng = np.random.default_rng(1)
    x, y = (rng.standard_normal(4096).astype(dtype.numpy) * 4 for _ in range(2))
    want = compiled(op, dtype, 1)(x, y).tobytes()
    for lanes in (2, 4, 8, 16, 32):
        assert compiled(op, dtype, lanes)(x, y).tobytes() == want, f"{lanes} lanes"


@pytest.mark.parametrize("op", OPS)
def test_the_row_agrees_with_numpy_about_ranges_and_changes(op: BinaryOp) -> None:
    """Image and change, over boxes of arguments of all sizes."""
    rng = np.random.default_rng(2)
    steps = np.linspace(-1, 1, 9)
    for _ in range(400):
        x, y = rng.uniform(-4, 4), rng.choice([rng.uniform(-4, 4), float(rng.integers(-4, 5))])
        ex, ey = rng.choice([0.0, 1e-6, 0.3, 3.0], 2)
        with np.errstate(all="ignore"):
            values = row(op).values(np, (x + ex * steps)[:, None], (y + ey * steps)[None, :])
            z = row(op).values(np, np.array([x]), np.array([y]))
            change = row(op).change(
                np, np.array([x]), np.array([y]), z, np.array([ex]), np.array([ey])
            )
        ends = (x - ex, x + ex), (y - ey, y + ey)
        low, high = row(op).image(*ends)
        if row(op).defined(*ends):
            slack = 1e-12 * max(1.0, *np.abs(values).flat)
            assert low - slack <= values.min() <= values.max() <= high + slack
        moved = np.abs(values - z)
        if not np.isnan(change) and not np.isnan(moved).any():
            assert moved.max() <= change[0] * (1 + 1e-12) + 1e-12


@pytest.mark.parametrize("path", TARGET_FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("op", OPS)
def test_no_target_calls_a_library(op: BinaryOp, path: Path) -> None:
    target = Target.from_json(json.loads(path.read_text()))
    for dtype in WIDTHS:
        lanes = target.lanes(dtype)
        text = module_text(function_of_two(op, dtype, lanes), dtype, lanes)
        assert CALL.findall(emit_assembly(text, target)) == [], dtype.value


@pytest.mark.parametrize("op", OPS)
def test_no_kernel_for_plain_x86_calls_a_library(op: BinaryOp) -> None:
    workload = notation(f"Y[i] = {op}(X[i], Z[i])", X="f32[19]", Z="f32[19]")
    assert CALL.findall(assembly_text(workload, Trace(()), level_target("x86-64"))) == []


def test_other_operations_have_no_such_function() -> None:
    with pytest.raises(ValueError, match="takes one of pow, atan2, f32 or f64"):
        function_of_two(BinaryOp.ADD, DType.F32, 4)
    with pytest.raises(ValueError, match="f32 or f64"):
        function_of_two(BinaryOp.POW, DType.BF16, 4)
