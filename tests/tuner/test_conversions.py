"""Numbers are rounded once on their way to a float type, whatever they come from."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.interpreter import arithmetic
from tests.support.interpreter.interpret import interpret
from tests.support.schedule_fuzz.check import run_kernel, this_machine
from tests.support.tuner.targets import plain
from tilewright.schedules.algebra.narrow import narrowed, nearest, round_to, to_odd, widened
from tilewright.schedules.algebra.values import const
from tilewright.schedules.dtypes import DType
from tilewright.schedules.frontend.notation import from_notation
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.primitives import Primitive, Split, Vectorize
from tilewright.schedules.reference.evaluate import evaluate
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload
from tilewright.tuner.emit.kernel import compile_kernel
from tilewright.tuner.judge.compare import Case
from tilewright.tuner.judge.input_plan import InputKind
from tilewright.tuner.judge.oracle import Oracle

Array = npt.NDArray[Any]

TARGETS = {"native": lambda: this_machine(1, 512), "plain": plain}
NARROW = {"bf16": DType.BF16, "f16": DType.F16}


def exactly(value: Fraction, dtype: DType) -> float:
    """The number of `dtype` nearest to `value`, ties to even, by whole numbers alone."""
    form, size = dtype.binary, abs(value)
    if not size:
        return 0.0
    exponent = math.floor(math.log2(size.numerator) - math.log2(size.denominator))
    while size >= 2 * Fraction(2) ** exponent:
        exponent += 1
    while size < Fraction(2) ** exponent:
        exponent -= 1
    step = Fraction(2) ** max(exponent + 1 - form.precision, form.step_exponent)
    whole = round(size / step) * step  # Python rounds ties to even as well
    number = float(whole) if whole <= Fraction(form.largest) else math.inf
    return -number if value < 0 else number


def whole_numbers(bits: int) -> Array:
    """Integers where a rounding on the way would decide a tie."""
    rng = np.random.default_rng(bits)
    near = [0, 1, -1, (1 << (bits - 1)) - 1, -(1 << (bits - 1))]
    for exponent in range(1, bits - 1):
        for top in (1, 0x81, 0x83, 0x1FF, 0x401, 0x403, 0x1000001, 0x1000003):
            shifted = top << max(exponent - top.bit_length() + 1, 0)
            tie = shifted + (1 << max(exponent - 8, 0)) // 1
            for base in (shifted, tie, shifted + (1 << max(exponent - 24, 0))):
                near += [base + d for d in (-1, 0, 1)] + [-base + d for d in (-1, 0, 1)]
    limit = 1 << (bits - 1)
    fitting = [n for n in near if -limit <= n < limit]
    drawn = rng.integers(-limit, limit - 1, 500, np.int64, endpoint=True)
    small = drawn >> rng.integers(0, bits - 1, 500)
    return np.concatenate([np.array(fitting, np.int64), drawn, small]).astype(f"int{bits}")


def real_numbers() -> Array:
    """f64 numbers just beside ties of narrow floats, closer than an f32 can say; ends; the rest."""
    rng = np.random.default_rng(3)
    some = []
    for precision, exponents in ((8, range(-134, 129)), (11, range(-26, 17))):
        for exponent in exponents:
            top = float(rng.integers(1 << precision, 2 << precision) | 1)  # halfway
            some.append(math.ldexp(top, exponent - precision))
    ends = [65504, 65519.999999999, 65520, 3.3895313892515355e38, 3.3961775292304e38, 1e39, 1e300,
            2.0**-25, 2.0**-24, 2.0**-134, 2.0**-133, 1e-45, 1e-300, 5e-324, 0.0]  # fmt: skip
    values = np.array([*some, *ends])
    drawn = rng.standard_normal(200) * 10.0 ** rng.integers(-50, 50, 200)
    beside = [np.nextafter(values, np.inf), np.nextafter(values, -np.inf), values]
    every = np.concatenate([*beside, drawn])
    return np.concatenate([every, -every, [np.inf, -np.inf, np.nan]])


VALUES = {"f64": real_numbers(), "i64": whole_numbers(64), "i32": whole_numbers(32)}


def expected(values: Array, dtype: DType) -> Array:
    """f64 numbers that are exactly what `dtype` must hold."""
    return np.array([
        exactly(Fraction(v), dtype) if isinstance(v, int) or math.isfinite(v) else v
        for v in values.tolist()
    ])  # fmt: skip


def same_numbers(got: Array, want: Array) -> None:
    np.testing.assert_array_equal(got, want)
    zero = want == 0
    np.testing.assert_array_equal(np.isnan(got[zero]), False)


def conversion(source: str, target: str) -> Workload:
    return from_notation(f"Y[i] = {target}(X[i])", {"X": (source, VALUES[source].shape)})


@pytest.mark.parametrize("target", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("source", VALUES)
@pytest.mark.parametrize("lanes", [1, 3, 4, 8, 16])
@pytest.mark.parametrize("name", TARGETS)
def test_kernels_round_once(name: str, lanes: int, source: str, target: str) -> None:
    workload, x = conversion(source, target), VALUES[source]
    steps: tuple[Primitive, ...] = (Split("s0.d0", lanes), Vectorize("s0.d0i"))
    kernel = compile_kernel(workload, Trace(steps if lanes > 1 else ()), TARGETS[name]())
    case = Case(InputKind.NORMAL, 0, False, (x,), ())
    (found,) = run_kernel(kernel, workload, case)
    dtype = DType(target)
    same_numbers(widened(found, dtype).astype(np.float64), expected(x, dtype))


@pytest.mark.parametrize("target", NARROW)
@pytest.mark.parametrize("source", VALUES)
def test_reference_and_interpreter_round_once(source: str, target: str) -> None:
    workload, x, dtype = conversion(source, target), VALUES[source], NARROW[target]
    want = expected(x, dtype)
    with np.errstate(all="ignore"):
        same_numbers(evaluate(workload, [x])[0], want)
        (stored,) = interpret(lower(workload, Trace(())), [x])
        same_numbers(widened(stored, dtype).astype(np.float64), want)
        same_numbers(round_to(to_odd(x), dtype), want)
        if source == "f64":
            same_numbers(widened(narrowed(x, dtype), dtype).astype(np.float64), want)
        to_type = arithmetic.cast(DType(source), dtype)
        same_numbers(np.array([float(to_type(v)) for v in x]), want)


@pytest.mark.parametrize("target", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("source", VALUES)
def test_constants_are_rounded_once(source: str, target: str) -> None:
    dtype = DType(target)
    x = VALUES[source]
    want = expected(x, dtype)
    same_numbers(np.array([nearest(v, dtype) for v in x.tolist()]), want)
    kept = np.isfinite(want)
    found = [const(v, dtype).value for v, keep in zip(x.tolist(), kept, strict=True) if keep]
    same_numbers(np.array(found, np.float64), want[kept])


@pytest.mark.parametrize("target", NARROW)
@pytest.mark.parametrize("source", VALUES)
def test_a_rounding_on_the_way_is_seen(source: str, target: str) -> None:
    """By way of f32 is wrong now, where inputs lie beside a tie."""
    workload, dtype = conversion(source, target), NARROW[target]
    x = VALUES[source]
    if source != "f64":
        if dtype is DType.F16:  # f32 holds every whole number that f16 does
            return
        x = x[np.abs(x.astype(np.float64)) < 2.0 ** (x.itemsize * 8 - 2)]
    want = expected(x, dtype)
    with np.errstate(all="ignore"):
        twice = round_to(x.astype(np.float32).astype(np.float64), dtype)
    assert not np.array_equal(twice, want, equal_nan=True)
    assert Oracle(workload).quick.judged_fraction == 1.0


def test_integers_no_float_is_near_to_are_refused() -> None:
    with pytest.raises(OverflowError, match="too large"):
        nearest(1 << 2000, DType.F32)
