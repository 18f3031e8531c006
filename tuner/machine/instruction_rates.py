"""Rates of a machine on narrow operands: the fastest instruction, and whether its rate was probed.

Generated code first widens narrow operands. A machine can compute faster on them: dot-product
instructions add several products per lane, and vectors have more lanes of narrower elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.dtypes import DType
from tilewright.schedules.nest.instructions import fastest_for
from tilewright.schedules.target import Target


@dataclass(frozen=True, slots=True)
class NarrowOperands:
    """Narrow elements that some operations read."""

    dtype: DType
    products: bool
    """Whether products of the elements are summed."""


@dataclass(frozen=True, slots=True)
class InstructionRates:
    """Operations per second of an instruction or a type."""

    by: str
    """The name of the instruction or type."""
    flops: tuple[float, ...]
    """The rates on 1, 2, ... threads."""
    probed: bool
    """If False, the rates are derived from those of f32."""


def rates_for(
    operands: NarrowOperands, target: Target, f32_flops: tuple[float, ...]
) -> InstructionRates | None:
    """Return the rates of `target` on `operands`. Return None if they are computed at the rates of
    the widened type."""
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
