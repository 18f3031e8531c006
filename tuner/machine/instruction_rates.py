"""Rates of a machine on narrow operands: the fastest instruction, and whether its rate was probed.

Generated code currently widens narrow operands first. A machine can be faster: dot-product
instructions add several products per lane, and a vector has more lanes of narrower elements.
Without these rates the bound would describe this project's code, not the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.instructions import fastest_for
from tilewright.schedules.target import Target


@dataclass(frozen=True, slots=True)
class NarrowOperands:
    """Narrow elements of `dtype` that some operations read. `products` is True if products of them
    are summed, False if they are only compared or added."""

    dtype: DType
    products: bool


@dataclass(frozen=True, slots=True)
class InstructionRates:
    """Operations per second on one thread, two threads, and so on. `by` names the instruction or
    the type. `probed` is False if the rate is derived from the rate of f32."""

    by: str
    flops: tuple[float, ...]
    probed: bool


def rates_for(
    operands: NarrowOperands, target: Target, f32_flops: tuple[float, ...]
) -> InstructionRates | None:
    """Return the rates of `target` on `operands`, or None if they equal the rates of the widened
    type. `f32_flops` are the rates of f32 multiply-adds."""
    dot = fastest_for(operands.dtype, target) if operands.products else None
    if dot is not None:
        threads = range(1, len(f32_flops) + 1)
        known = tuple(target.probes.peak_of(dot.name, p) * 1e9 for p in threads)
        if all(known):
            return InstructionRates(dot.name, known, probed=True)
        return InstructionRates(
            dot.name, tuple(dot.gain * flops for flops in f32_flops), probed=False
        )
    if operands.products or operands.dtype.is_float:
        return None
    lanes = 32.0 / operands.dtype.bits  # of a vector, for each lane that f32 has
    return InstructionRates(
        operands.dtype.value, tuple(lanes * flops for flops in f32_flops), probed=False
    )
