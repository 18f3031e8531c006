"""Rates of a machine on narrow operands: the fastest instruction, and whether its rate was probed.

Generated code widens narrow operands first. A machine can be faster, because dot-product
instructions add several products per lane, and vectors have more lanes of narrower elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.instructions import fastest_for
from tilewright.schedules.target import Target


@dataclass(frozen=True, slots=True)
class NarrowOperands:
    """Narrow elements that some operations read; `products` if their products are summed."""

    dtype: DType
    products: bool


@dataclass(frozen=True, slots=True)
class InstructionRates:
    """Operations per second on 1, 2, ... threads by an instruction or type `by`.

    If not `probed`, the rate is derived from that of f32.
    """

    by: str
    flops: tuple[float, ...]
    probed: bool


def rates_for(
    operands: NarrowOperands, target: Target, f32_flops: tuple[float, ...]
) -> InstructionRates | None:
    """Return the rates of `target` on `operands`, or None if these are the widened type's rates."""
    dot = fastest_for(operands.dtype, target) if operands.products else None
    if dot is not None:
        threads = range(1, len(f32_flops) + 1)
        known = tuple(target.probes.peak_of(dot.name, p) * 1e9 for p in threads)
        if all(known):
            return InstructionRates(dot.name, known, probed=True)
        name, gain = dot.name, dot.gain
    elif operands.products or operands.dtype.is_float:
        return None
    else:
        name, gain = operands.dtype.value, 32.0 / operands.dtype.bits  # a vector has more lanes
    return InstructionRates(name, tuple(gain * flops for flops in f32_flops), probed=False)
