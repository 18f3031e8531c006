"""Drawing of test inputs of each `InputKind`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedules.algebra.narrow import narrowed, widened
from tilewright.schedules.dtypes import DType
from tilewright.schedules.reference.cost import points
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload

from .discriminating_inputs import (
    ANCHOR,
    FAR_BELOW_BITS,
    balanced,
    lone_zero,
    one_place_per_line,
    positions,
    singles,
    sparse,
    spread,
    with_axis,
)
from .index_inputs import indices
from .input_plan import REAL_SPAN, WIDE_EXPONENT, InputKind, InputPlan, plan_inputs

Array = npt.NDArray[Any]
_SHIFT = 8000.0


def make_inputs(
    workload: Workload, kind: InputKind, seed: int, plan: InputPlan | None = None
) -> list[Array]:
    """Return inputs of `workload` in the types of its buffers (bf16 as uint16 bits).

    All values are finite. The same arguments give the same arrays in any process. If `plan` is
    None, it is computed.
    """
    plan = plan_inputs(workload) if plan is None else plan
    rng = np.random.Generator(np.random.PCG64(seed))
    dense = [n for n, t in enumerate(workload.inputs) if t.dtype.is_float] or [0]
    drawn = _Drawn(plan, rng, seed, len(workload.inputs), seed // len(dense), points(workload))
    arrays = [
        _draw(
            with_axis(tensor),
            kind,
            drawn,
            is_shifted=number == seed % drawn.inputs,
            is_dense=number == dense[seed % len(dense)],
            is_signed=seed % (drawn.inputs + 1) in (0, number + 1),
        )
        for number, tensor in enumerate(workload.inputs)
    ]
    # Drawn last, so that the other inputs do not depend on them.
    arrays = [
        _selecting(array, tensor.name, plan, seed, rng)
        for array, tensor in zip(arrays, workload.inputs, strict=True)
    ]
    return [
        array if tensor.shape else _single(array, tensor.dtype)
        for array, tensor in zip(arrays, workload.inputs, strict=True)
    ]


def _single(drawn: Array, dtype: DType) -> Array:
    """Return the element of `drawn` as an array without dimensions, with 1 in place of 0: a factor
    of 0 would hide all other inputs."""
    is_zero = dtype is not DType.BOOL and not widened(drawn, dtype).any()
    return np.reshape(narrowed(np.ones(1), dtype) if is_zero else drawn, ())


def _selecting(
    values: Array, name: str, plan: InputPlan, seed: int, rng: np.random.Generator
) -> Array:
    """Return the values of an input, of which most are positions if the input selects elements."""
    if name in plan.indices:
        return indices(values, plan.indices[name], seed, rng)
    span = plan.positions.get(name)
    return values if span is None else positions(values, span, seed, rng)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The plan and the random state of one set of inputs."""

    plan: InputPlan
    rng: np.random.Generator
    seed: int
    count: int
    """The number of inputs."""
    sweep: int
    """The number of times that each float input was swept before."""
    points: int
    """The number of iteration points of the workload."""

    @property
    def inputs(self) -> int:
        return max(self.count, 1)

    @property
    def turn(self) -> int:
        """The number of times that each input was selected before. It determines the first position
        of a line."""
        return self.seed // self.inputs


_BLOCK = (1 << 20) + 7
"""Larger inputs repeat a block of this many values. It is a prime, so that no two rows are
equal."""


def tiled(shape: tuple[int, ...], draw: Callable[[int], Array]) -> Array:
    """Return an array of `shape`, filled with values from `draw`."""
    count = prod(shape)
    return np.resize(draw(min(count, _BLOCK)), count).reshape(shape)


def _shifted(tensor: Tensor, kind: InputKind, drawn: _Drawn) -> Array:
    sunk, rng, plan = kind is InputKind.SUNK, drawn.rng, drawn.plan
    where = one_place_per_line(tensor.shape, plan.dims[tensor.name], drawn.turn)
    if tensor.dtype.is_float:
        values = _real(tensor, rng.random)
        if sunk and plan.positive:  # so that logarithms are far below zero
            values = np.asarray((values + 1) * values.dtype.type(2.0**-6))
            values[where] *= 8
            return values
        values *= values.dtype.type(REAL_SPAN)
        values += values.dtype.type(_SHIFT)
        values[where] -= _peak_sizes(_size(where), rng)
        return -values if sunk else values
    if tensor.dtype is DType.BOOL:
        return _extremes(tensor, rng)
    low, high = tensor.dtype.integer_range
    quarter = (high - low) // 4
    first, last = (low, low + quarter) if sunk else (high - quarter, high)
    return rng.integers(first, last, tensor.shape, tensor.dtype.numpy.type, endpoint=True)


def _size(where: tuple[Array, ...]) -> int:
    return len(where[0]) if where else 1


def _lone(tensor: Tensor, kind: InputKind, drawn: _Drawn) -> Array:
    top, dims = kind is InputKind.LONE_TOP, drawn.plan.dims[tensor.name]
    if tensor.dtype.is_float and not drawn.plan.positive:
        return lone_zero(tensor.shape, dims, drawn.turn, -1.0 if top else 1.0)
    where = one_place_per_line(tensor.shape, dims, drawn.turn)
    if tensor.dtype.is_float:
        values: Array = np.full(tensor.shape, 2.0**-6 if top else 2.0**6, np.float32)
        values[where] = 1.0
        return values
    low, high = tensor.dtype.integer_range
    values = np.full(tensor.shape, low if top else high, tensor.dtype.numpy)
    values[where] = high if top else low
    return values


def _anchors(tensor: Tensor, kind: InputKind, drawn: _Drawn) -> Array:
    plan, rng = drawn.plan, drawn.rng
    if plan.positive:
        choice: list[float] = [0.25, 1.0, 4.0]
    elif kind is InputKind.ANCHORS:
        choice = [-ANCHOR, 0.0, ANCHOR]
    else:
        choice = [0.0, -ANCHOR if kind is InputKind.BELOW else ANCHOR]
    values = np.array(choice, np.float32)
    # A sum may be a divisor. With this density of ones, one more or one less changes the quotient.
    some = 2.0**FAR_BELOW_BITS / plan.terms
    if plan.positive or some > 0.5:
        return tiled(tensor.shape, lambda n: values.take(rng.integers(0, len(values), n, np.int8)))
    rare = tiled(tensor.shape, lambda n: rng.random(n, np.float32) < some)
    return np.asarray(np.where(rare, values[0], values[-1]))


def _above_zero(tensor: Tensor, drawn: _Drawn) -> Array:
    if tensor.dtype.is_float:
        return _uniform(tensor, drawn.plan, drawn.rng)
    return _integers(tensor, 1, 2, drawn.rng)


def _draw(
    tensor: Tensor,
    kind: InputKind,
    drawn: _Drawn,
    *,
    is_shifted: bool,
    is_dense: bool,
    is_signed: bool,
) -> Array:
    plan, rng = drawn.plan, drawn.rng
    match kind:
        case InputKind.INTEGERS:
            return narrowed(_integers(tensor, plan.low, plan.high, rng), tensor.dtype)
        case InputKind.SPIKES:
            return narrowed(_spikes(tensor, plan, rng), tensor.dtype)
        case InputKind.SUNK | InputKind.RAISED:
            values = _shifted(tensor, kind, drawn) if is_shifted else _above_zero(tensor, drawn)
            return narrowed(values, tensor.dtype)
        case InputKind.SWEPT if is_dense and tensor.dtype.is_float:
            is_reused = drawn.points > _FEW_USES * tensor.elements
            return narrowed(
                swept(tensor, plan, drawn.sweep, rng, is_reused=is_reused), tensor.dtype
            )
        case InputKind.SWEPT if tensor.dtype.is_float:
            usual = _uniform(tensor, plan, rng) if plan.positive else _normal(tensor, rng)
            return narrowed(usual, tensor.dtype)
        case InputKind.LONE_TOP | InputKind.LONE_BOTTOM:
            ones = _lone(tensor, kind, drawn) if is_shifted else _integers(tensor, 1, 2, rng)
            return narrowed(ones, tensor.dtype)
        case _ if not tensor.dtype.is_float and kind in _FEW_VALUES:
            return narrowed(_integers(tensor, plan.low, plan.high, rng), tensor.dtype)
        case _ if not tensor.dtype.is_float:
            return _extremes(tensor, rng)
        case _:
            return narrowed(_floats(tensor, kind, drawn, is_dense, is_signed), tensor.dtype)


_FEW_VALUES = (
    InputKind.ANCHORS,
    InputKind.BELOW,
    InputKind.ABOVE,
    InputKind.FEW,
    InputKind.BALANCED,
    InputKind.SINGLE,
)


def _floats(
    tensor: Tensor, kind: InputKind, drawn: _Drawn, is_dense: bool, is_signed: bool
) -> Array:
    plan, rng = drawn.plan, drawn.rng
    match kind:
        case InputKind.NORMAL | InputKind.EXTREMES if not plan.positive:
            return _normal(tensor, rng)
        case InputKind.NORMAL | InputKind.EXTREMES | InputKind.UNIFORM:
            return _uniform(tensor, plan, rng)
        case InputKind.PEAKS:
            return _peaks(tensor, drawn)
        case InputKind.SPECIAL | InputKind.WIDE:
            return _special(tensor, plan, rng, is_wide=kind is InputKind.WIDE)
        case InputKind.ANCHORS | InputKind.BELOW | InputKind.ABOVE:
            return _anchors(tensor, kind, drawn)
        case InputKind.FEW if plan.positive:  # no function vanishes far above zero
            return _uniform(tensor, plan, rng)
        case InputKind.FEW:
            return sparse(tensor.shape, plan.dims[tensor.name], drawn.seed, rng)
        case InputKind.BALANCED:
            values = balanced(tensor.shape, plan.terms, rng)
            return np.abs(values) + 1 if plan.positive else values
        case InputKind.SINGLE if is_dense:
            return _uniform(tensor, plan, rng) if plan.positive else _normal(tensor, rng)
        case InputKind.SINGLE if plan.positive:  # no zeros: the input may be a divisor
            return tiled(tensor.shape, lambda n: np.ldexp(np.float32(1), rng.integers(-2, 3, n)))
        case InputKind.SINGLE:
            return singles(tensor.shape, plan.dims[tensor.name], drawn.seed, rng)
        case InputKind.SIGNED:
            values = _real(tensor, rng.random) + _float_type(tensor)(0.5)
            signs = tiled(tensor.shape, lambda n: rng.integers(0, 2, n, np.int8))
            return np.where(signs == 1, -values, values) if is_signed else values
        case _:
            raise AssertionError(f"{kind} is drawn elsewhere")


def _float_type(tensor: Tensor) -> type[np.float32] | type[np.float64]:
    return np.float64 if tensor.dtype is DType.F64 else np.float32


def _integers(tensor: Tensor, low: int, high: int, rng: np.random.Generator) -> Array:
    first = low if tensor.dtype.is_signed else max(low, 0)
    last = high
    if tensor.dtype is DType.BOOL:
        first, last = 0, 1
    return tiled(
        tensor.shape, lambda count: rng.integers(first, last, count, np.int8, endpoint=True)
    )


def _spikes(tensor: Tensor, plan: InputPlan, rng: np.random.Generator) -> Array:
    low = plan.low if tensor.dtype.is_signed else max(plan.low, 0)
    values = _integers(tensor, low, min(low + 1, (low + plan.high) // 2), rng)
    share = min(0.25, 4.0 / plan.terms)
    spiked = tiled(tensor.shape, lambda count: rng.random(count, np.float32) < share)
    for last in _last_positions(tensor.shape):
        spiked[last] |= rng.random(spiked[last].shape, np.float32) < 0.5
    values[spiked] = _integers(tensor, max(plan.high - 1, low), plan.high, rng)[spiked]
    return values


def _last_positions(shape: tuple[int, ...]) -> Iterable[tuple[slice | int, ...]]:
    """Yield an index of the last position along each axis that has at least four elements."""
    for axis, extent in enumerate(shape):
        if extent >= 4:
            yield (*(slice(None),) * axis, extent - 1)


def _normal(tensor: Tensor, rng: np.random.Generator) -> Array:
    values = _real(tensor, rng.standard_normal)
    clipped: Array = np.clip(values, -REAL_SPAN, REAL_SPAN, out=values)
    return clipped


def _real(tensor: Tensor, draw: Callable[..., Array]) -> Array:
    return tiled(tensor.shape, lambda count: draw(count, _float_type(tensor)))


def _uniform(tensor: Tensor, plan: InputPlan, rng: np.random.Generator) -> Array:
    values = _real(tensor, rng.random)
    values += values.dtype.type(0.5 if plan.positive else 0.0)
    return values


def _peaks(tensor: Tensor, drawn: _Drawn) -> Array:
    """Draw values with one peak in each line. Its position moves from line to line."""
    plan, rng = drawn.plan, drawn.rng
    values = _uniform(tensor, plan, rng) if plan.positive else _normal(tensor, rng)
    if not plan.positive:
        share = min(0.25, 4.0 / plan.terms)
        deep = tiled(tensor.shape, lambda count: rng.random(count, np.float32) < share)
        values[deep] -= _peak_sizes(int(deep.sum()), rng).astype(values.dtype)
    where = one_place_per_line(tensor.shape, plan.dims[tensor.name], drawn.seed)
    values[where] = _peak_sizes(_size(where), rng)
    return values


def _peak_sizes(count: int, rng: np.random.Generator) -> Array:
    sizes: Array = np.ldexp(np.float32(100), rng.integers(0, 7, count, np.int32))
    return sizes


_DENORMAL_SHARE = 0.05
"""The fraction of values that are denormal, if each is combined with few others."""
_DENORMALS = 16
"""The number of denormal values that an input with more elements has at least."""


def _special(tensor: Tensor, plan: InputPlan, rng: np.random.Generator, *, is_wide: bool) -> Array:
    if plan.positive:
        exponents = rng.integers(-6, 6, tensor.shape, np.int32)
        scaled: Array = np.ldexp(rng.random(tensor.shape, _float_type(tensor)) + 1, exponents)
        return scaled
    denormal = 2.0 ** (tensor.dtype.binary.normal_exponent - tensor.dtype.wide.bytes)
    large = 2.0**plan.large_exponent / REAL_SPAN
    # Intel CPUs take about 150 cycles longer for an operation with a denormal operand.
    few = max(_DENORMAL_SHARE / plan.terms, _DENORMALS / max(tensor.elements, 1))
    denormals = min(_DENORMAL_SHARE, few)

    def draw(count: int) -> Array:
        values = rng.standard_normal(count, _float_type(tensor))
        values = np.clip(values, -REAL_SPAN, REAL_SPAN, out=values)
        choice = rng.random(count, np.float32)
        values[choice < denormals] *= values.dtype.type(denormal)
        values[(choice >= 0.05) & (choice < 0.10)] = -0.0
        values[(choice >= 0.10) & (choice < 0.15)] = 0.0
        if is_wide or plan.large_exponent >= WIDE_EXPONENT:
            graded = (choice >= 0.15) & (choice < (1.0 if is_wide else 0.25))
            most = WIDE_EXPONENT - np.log2(REAL_SPAN)
            values[graded] *= np.exp2(most * rng.random(int(graded.sum()), _float_type(tensor)))
        if not is_wide:
            values[choice > 1.0 - min(0.05, 4.0 / plan.terms)] *= values.dtype.type(large)
        return values

    return tiled(tensor.shape, draw)


_FEW_USES = 16
"""An input is reused if the workload has more iteration points per element of the input."""
_PRODUCT_BITS = 16
"""A number is at least 2**_PRODUCT_BITS times the least normal number if its products with most
numbers of N(0, 1) are normal."""


def swept(
    tensor: Tensor,
    plan: InputPlan,
    sweep: int,
    rng: np.random.Generator,
    *,
    is_reused: bool = False,
) -> Array:
    """Draw magnitudes over the whole range of the type. Each line along a reduction has about one
    magnitude.

    `sweep` is the number of earlier draws. The sequence of magnitudes continues after them. If
    `is_reused`, products with these magnitudes are normal numbers: Intel CPUs take about 150 cycles
    longer for an operation with a denormal one, and each value is in many products.
    """
    dims = plan.dims[tensor.name] if plan.terms > 1 else ()
    shape = tuple(1 if d in dims else n for d, n in enumerate(tensor.shape))
    levels = prod(shape)
    sizes = tiled(shape, lambda count: spread(tensor.dtype, count, sweep * levels, plan.positive))
    if is_reused:
        least = 2.0 ** (tensor.dtype.wide.binary.normal_exponent + _PRODUCT_BITS)
        raised = 2.0 ** (2 * _PRODUCT_BITS + tensor.dtype.wide.binary.precision)
        sizes = np.where(np.abs(sizes) < least, sizes * raised, sizes)
    if not dims:
        return sizes
    within = tiled(tensor.shape, lambda count: 1.0 - 0.5 * rng.random(count))
    return np.asarray(sizes * within)


_BOOL_BYTES = np.array([0, 0, 0, 0, 1, 1, 2, 128, 255], np.uint8)
"""Bytes of bools. Programs in C may pass others than 0 and 1, which are true."""


def _extremes(tensor: Tensor, rng: np.random.Generator) -> Array:
    low, high = tensor.dtype.integer_range
    if tensor.dtype is DType.BOOL:
        return rng.choice(_BOOL_BYTES, tensor.shape).view(np.bool_)
    kind = tensor.dtype.numpy.type
    values: Array = rng.integers(low, high, tensor.shape, kind, endpoint=True)
    choice = rng.random(tensor.shape, np.float32)
    values[choice < 0.1] = low
    values[choice > 0.9] = high
    return values
