"""How fast a machine computes on narrow operands: by which of its instructions, and whether that is
probed.

Generated code widens narrow operands first. What other schedules could do with them is more: dot
products add up several products a lane, and a vector has more lanes of fewer bits. A bound that
left this out would be one of our code, not of the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.dtypes import DType
from tilewright.schedules.target import Target

from ..isa.dots import dot_for


@dataclass(frozen=True, slots=True)
class NarrowOperands:
    """What some of the work is done on: elements of `dtype`, of which products are added up, or
    which are compared and added one by one."""

    dtype: DType
    products: bool


@dataclass(frozen=True, slots=True)
class InstructionRates:
    """Operations a second of one thread, two threads, ...; `by` is the instruction's name, or the
    type's. `probed` is False where they follow from those of f32."""

    by: str
    flops: tuple[float, ...]
    probed: bool


def rates_for(
    operands: NarrowOperands, target: Target, f32_flops: tuple[float, ...]
) -> InstructionRates | None:
    """How fast `target` can work on `operands`, where that is not as fast as on what they are
    widened to; `f32_flops` are those of f32's multiply-adds."""
    dot = dot_for(operands.dtype, target) if operands.products else None
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
    lanes = 32.0 / operands.dtype.bits  # of a vector, for each that f32 has
    return InstructionRates(
        operands.dtype.value, tuple(lanes * flops for flops in f32_flops), probed=False
    )
