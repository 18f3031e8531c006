"""Vector math functions of generated kernels, as LLVM text, for every lane count.

The functions have no branches, tables in memory, gathers or calls of libm. They consist of a range
reduction, a polynomial, and bit operations that every target has. With AVX2 or AVX-512, some look
up coefficients in registers. `docs/math.md` states and measures the errors. Results are the same
for every lane count of a target. Targets with different instructions may differ in the last bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from tilewright.schedules.algebra.scalar import BinaryOp, UnaryOp
from tilewright.schedules.dtypes import DType
from tilewright.schedules.target import Target

from ..isa.instruction_set import instruction_set
from . import arctangents, exponentials, logarithms, powers
from . import math_polynomials as fitted
from .math_body import FORMATS, Body
from .piecewise import piecewise
from .sine import cosine, sine, tangent


@dataclass(frozen=True, slots=True)
class MathFunction:
    """A function `define internal VECTOR @name(VECTOR %x)`, which is always inlined.

    It calls intrinsics without declarations, because LLVM's parser knows them.
    """

    name: str
    text: str
    """Its definition."""
    lines: tuple[str, ...] = ()
    """Its instructions."""
    result: str = ""
    """The name of its result."""


@lru_cache(maxsize=256)
def math_function(
    op: UnaryOp, dtype: DType, lanes: int, target: Target | None = None
) -> MathFunction:
    """Return the function that computes `op` for `lanes` values of f32 or f64. Its argument is a
    vector `<lanes x float>`, or a `float` if there is one lane.

    `target` selects the instructions. Without it, they fit every target that rounds to integers.
    Raise ValueError for operations that are one LLVM instruction (neg, abs) and for types other
    than f32 and f64: narrow floats are computed in f32.
    """
    if op not in _EMITTERS or dtype not in FORMATS or lanes < 1:
        raise ValueError(
            f"math_function({op.value}, {dtype.value}, lanes={lanes}): takes one of "
            f"{', '.join(o.value for o in _EMITTERS)}, f32 or f64, and at least one lane"
        )
    body = Body(FORMATS[dtype], lanes)
    table = _by_table(op, dtype, target)
    if table is not None:
        result = _side_by_side(table.emit, body, "%x", table.lanes)
    else:
        result = _emitter(op, dtype, lanes, target)(body, "%x")
    return _function(_name(op, dtype, lanes), f"{body.floats} %x", body, result)


@dataclass(frozen=True, slots=True)
class _ByTable:
    """A function that looks up tables in registers. It uses them for every number of lanes, because
    results must not depend on that number."""

    emit: Callable[[Body, str], str]
    lanes: int
    """The number of lanes of the vectors for which `emit` writes code."""


def _by_table(op: UnaryOp, dtype: DType, target: Target | None) -> _ByTable | None:
    """Return how `target` computes `op` with tables in registers, or None if it does not."""
    if target is None or dtype is not DType.F32:
        return None
    floats = instruction_set(target).table_floats
    sixteenths = floats == len(exponentials.SIXTEENTHS) and _scales(target, dtype, floats)
    if op in _BY_SIXTEENTHS and sixteenths:
        return _ByTable(_BY_SIXTEENTHS[op], floats)
    if floats == len(fitted.LOG_16_F32_LOGS) and op in _BY_LOGARITHMS:
        return _ByTable(_BY_LOGARITHMS[op], floats)
    emit = piecewise(op, floats)
    return None if emit is None else _ByTable(emit, floats)


def _emitter(
    op: UnaryOp, dtype: DType, lanes: int, target: Target | None
) -> Callable[[Body, str], str]:
    """Return the function that writes `op` without tables."""
    if op in ROUNDINGS and target is not None and not instruction_set(target).rounding:
        return _ROUNDED_BY_ADDING[op]
    if op in _BY_SCALING and target is not None and _scales(target, dtype, lanes):
        return _BY_SCALING[op]
    return _EMITTERS[op]


def _side_by_side(emit: Callable[[Body, str], str], body: Body, x: str, width: int) -> str:
    """Apply `emit`, which only writes code for vectors of `width` lanes, to a vector of any number
    of lanes. The instructions of these vectors alternate, so that their dependence chains
    overlap."""
    if body.lanes == width:
        return emit(body, x)
    one = Body(body.fmt, width)
    result = emit(one, "%x")
    parts = [body.part(x, start, width) for start in range(0, body.lanes, width)]
    copies = [body.beside(one.lines, result, part) for part in parts]
    for step in zip(*(lines for lines, _ in copies), strict=True):
        body.lines.extend(step)
    return body.joined([name for _, name in copies], width)


@lru_cache(maxsize=64)
def function_of_two(op: BinaryOp, dtype: DType, lanes: int) -> MathFunction:
    """Return the function that computes `op(x, y)` for `lanes` pairs of f32 or f64, as
    `math_function` does for functions of one value."""
    if op not in _EMITTERS_OF_TWO or dtype not in FORMATS or lanes < 1:
        raise ValueError(
            f"function_of_two({op.value}, {dtype.value}, lanes={lanes}): takes one of "
            f"{', '.join(o.value for o in _EMITTERS_OF_TWO)}, f32 or f64, and at least one lane"
        )
    body = Body(FORMATS[dtype], lanes)
    result = _EMITTERS_OF_TWO[op](body, "%x", "%y")
    arguments = f"{body.floats} %x, {body.floats} %y"
    return _function(_name(op, dtype, lanes), arguments, body, result)


def _name(op: UnaryOp | BinaryOp, dtype: DType, lanes: int) -> str:
    return f"tw_{op.value}_{dtype.value}" + (f"x{lanes}" if lanes > 1 else "")


def _function(name: str, arguments: str, body: Body, result: str) -> MathFunction:
    head = f"define internal {body.floats} @{name}({arguments})"
    attributes = "alwaysinline nounwind willreturn memory(none)"
    lines = [f"{head} {attributes} {{", *body.lines, f"  ret {body.floats} {result}", "}"]
    return MathFunction(name, "\n".join(lines) + "\n", tuple(body.lines), result)


def is_math_function(op: UnaryOp) -> bool:
    """Return whether `op` needs `math_function`. Other operations are one LLVM instruction."""
    return op in _EMITTERS


def _scales(target: Target, dtype: DType, lanes: int) -> bool:
    """Return whether AVX-512 can scale vectors of `lanes` by powers of two and limit their
    magnitude."""
    return lanes * dtype.bytes * 8 in instruction_set(target).scaled_bits


def _erf(b: Body, x: str) -> str:
    """Write x + x p(x^2) near zero and 1 - exp(p(|x|)) for larger |x|, and select one of them."""
    f = b.fmt
    magnitude = b.intrinsic("fabs", x)
    square = b.mul(magnitude, magnitude)
    near = b.muladd(b.polynomial(f.erf_head, square), magnitude, magnitude)
    t = b.sub(b.at_most(magnitude, b.const(f.erf_high)), b.const(f.erf_center))
    p, z = exponentials.reduced_exponent(b, b.polynomial(f.erf_tail, t), f.bias)
    scale = exponentials.power_of_two(b, z)
    complement = b.muladd(p, scale, scale)
    far = b.sub(b.const(1.0), complement)
    chosen = b.select(b.compare("olt", magnitude, b.const(f.erf_split)), near, far)
    return b.copysign(chosen, x)


def _sqrt(b: Body, x: str) -> str:
    return b.intrinsic("sqrt", x)


def _sign(b: Body, x: str) -> str:
    zero = b.const(0.0)
    unsigned = b.select(b.compare("oeq", x, zero), zero, x)  # 0 or NaN
    below = b.select(b.compare("olt", x, zero), b.const(-1.0), unsigned)
    return b.select(b.compare("ogt", x, zero), b.const(1.0), below)


def _rsqrt(b: Body, x: str) -> str:
    """Write 1 / sqrt(x) by two correctly rounded operations."""
    return b.div(b.const(1.0), b.intrinsic("sqrt", x))


ROUNDINGS = {
    UnaryOp.FLOOR: "floor",
    UnaryOp.CEIL: "ceil",
    UnaryOp.TRUNC: "trunc",
    UnaryOp.ROUND: "roundeven",
}
"""LLVM's names of the functions that round to integers."""


def _floor_by_adding(b: Body, x: str) -> str:
    """Write floor without a rounding instruction, for targets on which `llvm.floor` calls libm.

    Adding and subtracting 2**mantissa rounds to an integer, which is corrected if it is too high.
    Larger magnitudes, infinities and NaN are returned unchanged.
    """
    magnitude, large, rounded = _nearest(b, x)
    lower = b.sub(rounded, b.const(1.0))
    floor = b.select(b.compare("ogt", rounded, x), lower, rounded)
    return b.select(b.compare("olt", magnitude, large), floor, x)


def _nearest(b: Body, x: str) -> tuple[str, str, str]:
    """Return |x|, 2**mantissa, and the integer nearest to x (the even one of two) for smaller
    |x|."""
    large = b.const(2.0**b.fmt.mantissa)
    magnitude = b.intrinsic("fabs", x)
    return magnitude, large, b.copysign(b.sub(b.add(magnitude, large), large), x)


def _ceil_by_adding(b: Body, x: str) -> str:
    """Write -floor(-x), also for signs of zeros."""
    return _negated(b, _floor_by_adding(b, _negated(b, x)))


def _trunc_by_adding(b: Body, x: str) -> str:
    return b.copysign(_floor_by_adding(b, b.intrinsic("fabs", x)), x)


def _round_by_adding(b: Body, x: str) -> str:
    magnitude, large, rounded = _nearest(b, x)
    return b.select(b.compare("olt", magnitude, large), rounded, x)


def _negated(b: Body, x: str) -> str:
    sign = 1 << (b.fmt.bits - 1)
    return b.from_bits(b.int_op("xor", b.to_bits(x), b.int_const(sign)))


_ROUNDED_BY_ADDING: dict[UnaryOp, Callable[[Body, str], str]] = {
    UnaryOp.FLOOR: _floor_by_adding,
    UnaryOp.CEIL: _ceil_by_adding,
    UnaryOp.TRUNC: _trunc_by_adding,
    UnaryOp.ROUND: _round_by_adding,
}


_EMITTERS: dict[UnaryOp, Callable[[Body, str], str]] = {
    UnaryOp.EXP: exponentials.exp,
    UnaryOp.LOG: logarithms.log,
    UnaryOp.SQRT: _sqrt,
    UnaryOp.RSQRT: _rsqrt,
    UnaryOp.TANH: exponentials.tanh,
    UnaryOp.ERF: _erf,
    UnaryOp.SIGMOID: exponentials.sigmoid,
    UnaryOp.FLOOR: lambda b, x: b.intrinsic("floor", x),
    UnaryOp.CEIL: lambda b, x: b.intrinsic("ceil", x),
    UnaryOp.TRUNC: lambda b, x: b.intrinsic("trunc", x),
    UnaryOp.ROUND: lambda b, x: b.intrinsic("roundeven", x),
    UnaryOp.SIN: sine,
    UnaryOp.COS: cosine,
    UnaryOp.EXPM1: exponentials.expm1,
    UnaryOp.LOG1P: logarithms.log1p,
    UnaryOp.TAN: tangent,
    UnaryOp.ASIN: arctangents.asin,
    UnaryOp.ACOS: arctangents.acos,
    UnaryOp.ATAN: arctangents.atan,
    UnaryOp.SINH: exponentials.sinh,
    UnaryOp.COSH: exponentials.cosh,
    UnaryOp.ASINH: logarithms.asinh,
    UnaryOp.ACOSH: logarithms.acosh,
    UnaryOp.ATANH: logarithms.atanh,
    UnaryOp.EXP2: exponentials.exp2,
    UnaryOp.LOG2: logarithms.log2,
    UnaryOp.LOG10: logarithms.log10,
    UnaryOp.CBRT: powers.cube_root,
    UnaryOp.SOFTPLUS: exponentials.softplus,
    UnaryOp.SIGN: _sign,
}
_EMITTERS_OF_TWO: dict[BinaryOp, Callable[[Body, str, str], str]] = {
    BinaryOp.POW: powers.power,
    BinaryOp.ATAN2: arctangents.atan2,
}
_BY_SCALING: dict[UnaryOp, Callable[[Body, str], str]] = {
    UnaryOp.EXP: exponentials.exp_scaled,
    UnaryOp.EXP2: exponentials.exp2_scaled,
    UnaryOp.SOFTPLUS: exponentials.softplus_scaled,
}
"""Functions by the instruction of AVX-512 that scales by a power of two."""
_BY_SIXTEENTHS: dict[UnaryOp, Callable[[Body, str], str]] = {
    UnaryOp.EXP: exponentials.exp_by_table,
    UnaryOp.EXP2: exponentials.exp2_by_table,
    UnaryOp.SOFTPLUS: exponentials.softplus_by_table,
}
"""The same, with a table of the powers of two in steps of 1/16."""
_BY_LOGARITHMS: dict[UnaryOp, Callable[[Body, str], str]] = {
    UnaryOp.LOG: logarithms.log_by_table,
    UnaryOp.LOG1P: logarithms.log1p_by_table,
}
"""Functions by a table of 16 logarithms."""
