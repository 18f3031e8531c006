"""Vector math functions: accuracy over sweeps, special values, and no call of libm anywhere."""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from llvmlite import binding as llvm

from tests.support import scalar_oracles
from tests.support.paths import ROOT, TARGET_FILES, example_target
from tests.support.schedules.workloads import notation
from tests.support.tuner.math_accuracy import CPUS, Array, plainer, ulps
from tests.support.tuner.targets import CALL
from tilewright.schedules.algebra.scalar import UnaryOp
from tilewright.schedules.dtypes import DType
from tilewright.schedules.reference.error_exact import exact_function
from tilewright.schedules.reference.math import unary
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.tuner.codegen.mathlib import (
    ROUNDINGS,
    MathFunction,
    is_math_function,
    math_function,
)
from tilewright.tuner.emit.kernel import assembly_text
from tilewright.tuner.emit.object_code import emit_assembly, optimised
from tilewright.tuner.isa.instruction_set import instruction_set
from tilewright.tuner.machine.native_target import detect
from tilewright.tuner.machine.x86_levels import level_target

OPS = [op for op in UnaryOp if is_math_function(op)]


def stated_ulps(op: UnaryOp, dtype: DType) -> float:
    """The bound of docs/math.md, in units of the last place of the exact result."""
    stated = op.function.stated_ulps[0 if dtype is DType.F32 else 1]
    return 0.501 if stated == 0.5 else stated  # what it is compared with is rounded as well


def module_text(function: MathFunction, dtype: DType, lanes: int) -> str:
    """A module with `void kernel(in, out, vectors)` that maps `function` over an array."""
    element = "float" if dtype is DType.F32 else "double"
    vector = f"<{lanes} x {element}>" if lanes > 1 else element
    return f"""
{function.text}
define void @kernel(ptr noalias %in, ptr noalias %out, i64 %vectors) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %a = getelementptr {vector}, ptr %in, i64 %i
  %b = getelementptr {vector}, ptr %out, i64 %i
  %x = load {vector}, ptr %a, align {dtype.bytes}
  %y = call {vector} @{function.name}({vector} %x)
  store {vector} %y, ptr %b, align {dtype.bytes}
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %vectors
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


@cache
def compiled(op: UnaryOp, dtype: DType, lanes: int, cpu: str = "") -> Callable[[Array], Array]:
    """`op` over arrays whose length `lanes` divides, for this machine or a plainer `cpu` of it."""
    target = plainer(cpu) if cpu else detect()
    text = module_text(math_function(op, dtype, lanes, target), dtype, lanes)
    module = optimised(text, target)
    machine = llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=",".join(f"+{f}" for f in target.features), opt=3, jit=True
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        engine.get_function_address("kernel")
    )

    def run(x: Array) -> Array:
        assert engine is not None  # keeps the code alive as long as this function
        assert x.dtype == dtype.numpy
        assert x.size % lanes == 0
        out = np.full_like(x, 123.0)
        kernel(x.ctypes.data, out.ctypes.data, x.size // lanes)
        return out

    return run


def erf_long(x: Array) -> Array:
    """erf in long double: 2/sqrt(pi) exp(-x^2) sum of 2^n x^(2n+1) / (2n+1)!!, all positive."""
    size = np.minimum(np.abs(x), 7)
    term = size.copy()
    total = size.copy()
    for n in range(1, 200):
        term = term * (2 * size * size) / (2 * n + 1)
        total = total + term
    value = total * np.exp(-size * size) * 2 / np.sqrt(np.longdouble("3.14159265358979323846"))
    return np.copysign(np.where(size >= 7, 1, value), x)


def reference(op: UnaryOp) -> Callable[[Array], Array]:
    """`op` of arrays of any width."""
    found = erf_long if op is UnaryOp.ERF else scalar_oracles.of_array(op)
    assert found is not None, f"say what {op} is in long double"
    return found


def worst_ulps(op: UnaryOp, dtype: DType, x: Array, got: Array) -> float:
    """The greatest error of `got`; whatever is not finite must agree exactly."""
    with np.errstate(all="ignore"):
        wide = np.longdouble if dtype is DType.F64 else np.float64
        want = reference(op)(x.astype(wide))
        rounded = want.astype(dtype.numpy)
        finite = np.isfinite(got) & np.isfinite(rounded)
        np.testing.assert_array_equal(got[~finite], rounded[~finite])
        return float(np.max(ulps(got[finite], want[finite], dtype), initial=0.0))


def f32_sweep(op: UnaryOp) -> Array:
    """Every 20,011th bit pattern: all signs, exponents, denormals, infinities and NaNs; and values
    where the function is interesting, and where it is hard."""
    bits = np.arange(0, 2**32, 20_011, dtype=np.uint32).view(np.float32)
    close = np.linspace(*op.function.sweep, 20_000, dtype=np.float32)
    return whole_vectors(np.concatenate([bits, close, hard(op, DType.F32)]))


def hard(op: UnaryOp, dtype: DType) -> Array:
    """The function's hard arguments in `dtype`, of both signs, with their neighbours."""
    with np.errstate(over="ignore"):  # some are beyond f32
        x = np.array(op.function.hard).astype(dtype.numpy)
    near = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf)])
    return np.concatenate([near, -near]).astype(dtype.numpy)


def whole_vectors(x: Array) -> Array:
    """`x` to its last whole 16, begun again where that cuts some off."""
    return np.resize(x, -(-x.size // 16) * 16)


def f64_sweep(op: UnaryOp) -> Array:
    """Random bit patterns, and random values where the function is interesting."""
    rng = np.random.default_rng(20261121)
    bits = rng.integers(0, 2**64, 20_000, dtype=np.uint64).view(np.float64)
    wide = rng.uniform(*op.function.sweep, 20_000)
    near = rng.choice([-1.0, 1.0], 20_000) * np.exp2(rng.uniform(-40, 3, 20_000))
    return whole_vectors(np.concatenate([bits, wide, near, hard(op, DType.F64)]))


@pytest.mark.parametrize("op", OPS)
def test_f32_error_is_below_the_stated_bound(op: UnaryOp) -> None:
    x = f32_sweep(op)
    got = compiled(op, DType.F32, 8)(x)
    assert worst_ulps(op, DType.F32, x, got) <= stated_ulps(op, DType.F32)


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="no wider float to compare with")
@pytest.mark.parametrize("op", OPS)
def test_f64_error_is_below_the_stated_bound(op: UnaryOp) -> None:
    x = f64_sweep(op)
    got = compiled(op, DType.F64, 4)(x)
    assert worst_ulps(op, DType.F64, x, got) <= stated_ulps(op, DType.F64)


@pytest.mark.parametrize("cpu", CPUS[1:])
@pytest.mark.parametrize("op", OPS)
def test_error_bound_holds_on_plainer_machines(op: UnaryOp, cpu: str) -> None:
    """One without fused multiply-add, and one with tables of eight floats."""
    x = f32_sweep(op)
    got = compiled(op, DType.F32, 4, cpu)(x)
    assert worst_ulps(op, DType.F32, x, got) <= stated_ulps(op, DType.F32)


@pytest.mark.parametrize("cpu", ["", "x86-64-v3"])
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("op", OPS)
def test_every_lane_count_gives_the_same_bits(op: UnaryOp, dtype: DType, cpu: str) -> None:
    rng = np.random.default_rng(1)
    x = (rng.standard_normal(4096) * 8).astype(dtype.numpy)
    want = compiled(op, dtype, 1, cpu)(x).tobytes()
    for lanes in (2, 4, 8, 16, 32, 64):  # 16 of f64 is two or four registers: LLVM splits it
        assert compiled(op, dtype, lanes, cpu)(x).tobytes() == want, f"{lanes} lanes"


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("op", [UnaryOp.ERF, UnaryOp.TANH])
def test_odd_functions_end_at_one(op: UnaryOp, cpu: str) -> None:
    """Where they saturate, no rounding passes 1, and both signs have the same magnitude."""
    ends = np.linspace(3, 10, 2**20, dtype=np.float32)
    halves = np.exp2(np.linspace(-149, 128, 2**16, endpoint=False)).astype(np.float32)
    for x in (ends, halves):
        got = compiled(op, DType.F32, 16, cpu)(x)
        assert got.max() == 1
        assert got.min() >= 0
        assert (compiled(op, DType.F32, 16, cpu)(-x) == -got).all()


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("op", OPS)
def test_special_values(op: UnaryOp, dtype: DType, cpu: str) -> None:
    special = ((np.nan, np.nan), *op.function.special)  # NaN gives NaN everywhere
    x = np.array([x for x, _ in special], dtype.numpy)
    want = np.array([y for _, y in special], dtype.numpy)
    got = compiled(op, dtype, 1, cpu)(x)
    np.testing.assert_array_equal(got, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("op", OPS)
def test_exact_points(op: UnaryOp, dtype: DType, cpu: str) -> None:
    """What the error analysis takes for exact is so in every implementation, at any width."""
    rng = np.random.default_rng(3)
    far = np.concatenate([np.exp2(rng.uniform(5, 60, 200)), np.exp2(np.arange(5, 60)), [32, 760]])
    roots = np.concatenate([np.arange(1.0, 300), np.exp2(np.arange(-30, 31)), 1 / np.arange(1, 60)])
    near = np.concatenate([[0.0, -0.0, 1.0], rng.standard_normal(40)])
    narrow = np.concatenate([far, -far, roots, roots * roots, near]).astype(dtype.numpy)
    x = np.resize(narrow, -(-narrow.size // 64) * 64)
    if not op.function.defined(-1.0, 1.0):
        x = np.abs(x)
    with np.errstate(all="ignore"):
        want = unary(op, x.astype(np.float64))
        exact = exact_function(op, x.astype(np.float64), want, dtype)
    if op.function.exact is None:
        assert exact is None  # of floor: its bound is the jump it makes, none without an error
        return
    assert exact is not None
    assert exact.sum() >= 1
    for lanes in (1, 2, 4, 8, 16, 32):
        got = compiled(op, dtype, lanes, cpu)(x)
        np.testing.assert_array_equal(got[exact], want[exact])


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("op", [UnaryOp.EXPM1, UnaryOp.LOG1P])
def test_small_arguments_keep_their_bits(op: UnaryOp, dtype: DType) -> None:
    """Denormal arguments too: what subtracts 1 or adds it would lose them."""
    limits = np.finfo(np.float32 if dtype is DType.F32 else np.float64)
    tiny, normal = float(limits.smallest_subnormal), float(limits.tiny)
    x = np.array([tiny, -tiny, 5 * tiny, normal, -1e-30, 1e-20], dtype.numpy)
    x = whole_vectors(x)
    np.testing.assert_array_equal(compiled(op, dtype, 2)(x), x)


def test_results_become_denormal_gradually() -> None:
    x = np.array([-87.5, -95.0, -100.0, -103.0], np.float32)
    for op in (UnaryOp.EXP, UnaryOp.SIGMOID):
        got = compiled(op, DType.F32, 4)(x)
        assert np.all((got > 0) & (got < np.finfo(np.float32).tiny))
        assert worst_ulps(op, DType.F32, x, got) <= 1.0


@pytest.mark.parametrize("path", TARGET_FILES, ids=lambda path: path.stem)
def test_no_target_calls_a_library(path: Path) -> None:
    target = Target.from_json(json.loads(path.read_text()))
    for op in OPS:
        for dtype in (DType.F32, DType.F64):
            function = math_function(op, dtype, target.lanes(dtype), target)
            text = module_text(function, dtype, target.lanes(dtype))
            assembly = emit_assembly(text, target)
            assert CALL.findall(assembly) == [], f"{op.value} {dtype.value}"


def test_the_search_for_calls_finds_one() -> None:
    declared = MathFunction("sinf", "declare float @sinf(float)\n")
    for path in TARGET_FILES:
        target = Target.from_json(json.loads(path.read_text()))
        assembly = emit_assembly(module_text(declared, DType.F32, 1), target)
        assert CALL.findall(assembly), path.stem


# Vector instructions of a loop over f32 vectors with AVX2, load, store and copies included. A
# pass that undoes a clamp or a fused operation shows here, and in no result.
INSTRUCTIONS = {
    UnaryOp.EXP: 21,
    UnaryOp.LOG: 34,
    UnaryOp.TANH: 27,
    UnaryOp.ERF: 24,
    UnaryOp.SIGMOID: 19,
    UnaryOp.EXPM1: 22,
    UnaryOp.LOG1P: 44,
}


@pytest.mark.parametrize("op", list(INSTRUCTIONS))
def test_functions_stay_as_short_as_they_are(op: UnaryOp) -> None:
    target = example_target("x86-64-v3")
    function = math_function(op, DType.F32, 8, target)
    assembly = emit_assembly(module_text(function, DType.F32, 8), target)
    loop = re.split(r"^\.LBB0_1:", assembly, flags=re.MULTILINE)[1].split("\tj")[0]
    vector = [line for line in loop.splitlines() if re.match(r"\tv(?!broadcast)", line)]
    assert len(vector) <= INSTRUCTIONS[op]
    if op in (UnaryOp.EXP, UnaryOp.SIGMOID):
        assert not re.search(r"vcmp|vblend", loop)


@pytest.mark.parametrize(
    ("op", "count", "lookups"),
    [(UnaryOp.EXP, 11, 1), (UnaryOp.LOG, 19, 3), (UnaryOp.TANH, 20, 7), (UnaryOp.ERF, 18, 6)],
)
def test_functions_by_tables_of_sixteen_stay_short(op: UnaryOp, count: int, lookups: int) -> None:
    """Without loads, stores and copies."""
    target = example_target("skylake-avx512")
    text = module_text(math_function(op, DType.F32, 16, target), DType.F32, 16)
    loop = re.split(r"^\.LBB0_1:", emit_assembly(text, target), flags=re.MULTILINE)[1]
    vector = re.findall(r"^\tv(?!mov)\w+", loop.split("\tj")[0], flags=re.MULTILINE)
    assert len(vector) <= count
    assert sum(name in ("\tvpermps", "\tvpermd") for name in vector) == lookups
    assert not re.search(r"vdiv|vmax|vblend", loop)


def test_tables_need_the_instructions_that_read_them() -> None:
    def floats(*features: str) -> int:
        return instruction_set(replace(example_target("x86-64-v3"), features=features)).table_floats

    assert floats("avx2", "fma") == 8
    assert floats("avx512f") == 16  # which implies both
    assert floats("avx2") == floats("fma", "avx") == 0
    assert instruction_set(example_target("neoverse-n1")).table_floats == 0


@pytest.mark.parametrize("op", ROUNDINGS)
def test_a_plain_x86_rounding_needs_no_instruction_it_lacks(op: UnaryOp) -> None:
    native = detect()
    old = Target("x86_64-unknown-linux-gnu", "x86-64", (), 128, 16, native.caches, 1)
    name = f"llvm.{ROUNDINGS[op]}."
    assert name not in math_function(op, DType.F32, 4, old).text
    assert name in math_function(op, DType.F32, 4).text


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", OPS)
def test_no_kernel_for_plain_x86_calls_a_library(op: UnaryOp, dtype: str) -> None:
    workload = notation(f"Y[i] = {op}(X[i])", X=f"{dtype}[19]")
    assembly = assembly_text(workload, Trace(()), level_target("x86-64"))
    assert CALL.findall(assembly) == []


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("cpu", ["", "x86-64"])
@pytest.mark.parametrize("op", ROUNDINGS)
def test_roundings_are_numpys_at_halves_and_near_the_largest_fraction(
    op: UnaryOp, cpu: str, dtype: DType
) -> None:
    last = 2.0 ** (23 if dtype is DType.F32 else 52)
    halves = np.arange(-40, 40) / 2
    ends = np.array([last, last / 2, last - 1, last / 2 - 0.5, 2 * last + 2, 1e30, 0.49999997])
    x = np.concatenate([halves, ends, -ends]).astype(dtype.numpy)
    x = whole_vectors(np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf)]))
    found, wanted = compiled(op, dtype, 4, cpu)(x), unary(op, x)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_all_functions_live_in_one_module() -> None:
    functions = [math_function(op, d, n) for op in OPS for d in DType if d in (DType.F32, DType.F64)
                 for n in (1, 4, 8, 16)]  # fmt: skip
    assert len({f.name for f in functions}) == len(functions)
    llvm.parse_assembly("\n".join(f.text for f in functions)).verify()


@pytest.mark.parametrize(
    ("op", "dtype", "lanes"),
    [(UnaryOp.NEG, DType.F32, 8), (UnaryOp.EXP, DType.BF16, 8), (UnaryOp.EXP, DType.F32, 0)],
)
def test_what_is_not_offered_says_what_is(op: UnaryOp, dtype: DType, lanes: int) -> None:
    with pytest.raises(ValueError, match=r"takes one of exp, log, .*f32 or f64"):
        math_function(op, dtype, lanes)


def test_the_documented_bounds_are_those_of_the_table() -> None:
    text = (ROOT / "docs" / "math.md").read_text()
    rows = re.findall(
        r"^\| (\w+) \| ([\d.]+) \| [\d.]+ \| [\d.]+ \| ([\d.]+) \|", text, re.MULTILINE
    )
    stated = {name: (float(f32), float(f64)) for name, f32, f64 in rows}
    assert stated == {op.value: op.function.stated_ulps for op in OPS}
