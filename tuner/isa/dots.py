"""Instructions that add products of narrow operands up, several in each lane of a vector."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.dtypes import DType
from tilewright.schedules.target import Target

EIGHT_BITS = frozenset({DType.I8, DType.U8})
BF16 = frozenset({DType.BF16})
F16 = frozenset({DType.F16})


@dataclass(frozen=True, slots=True)
class Dot:
    """An instruction that adds products of `operands` up: `gain` times as many operations as f32's
    multiply-adds in the same time. `name` is that of its figure in `Probes.peak_gflops`.

    `features` are LLVM's names for what brings it, any of which will do; () on every CPU of the
    `architectures`. Sources of `gain`, products a core and cycle against f32's: Intel, Optimization
    Reference Manual (VNNI, BF16, AMX); AMD, Software Optimization Guide for Zen 4; Arm, Neoverse
    N2 Software Optimization Guide.
    """

    name: str
    operands: frozenset[DType]
    gain: float
    features: tuple[str, ...]
    architectures: tuple[str, ...] = ("x86_64",)


_ARM = ("aarch64", "arm64")
DOTS = (
    Dot("tdpbusd", EIGHT_BITS, 32.0, ("amx-int8",)),
    Dot("tdpbf16ps", BF16, 16.0, ("amx-bf16",)),
    Dot("tdpfp16ps", F16, 16.0, ("amx-fp16",)),
    Dot("vpdpbusd", EIGHT_BITS, 4.0, ("avx512vnni", "avxvnni", "avxvnniint8")),
    Dot("vdpbf16ps", BF16, 2.0, ("avx512bf16",)),
    Dot("vpmaddwd", EIGHT_BITS, 2.0, ()),
    Dot("smmla", EIGHT_BITS, 8.0, ("i8mm",), _ARM),
    Dot("bfmmla", BF16, 4.0, ("bf16",), _ARM),
    Dot("sdot", EIGHT_BITS, 4.0, ("dotprod",), _ARM),
    Dot("smlal", EIGHT_BITS, 2.0, (), _ARM),
)
"""In order of preference."""


def dot_for(operands: DType, target: Target) -> Dot | None:
    """The fastest instruction of `target` for sums of products of `operands`, if it has one."""
    for dot in DOTS:
        there = not dot.features or not set(dot.features).isdisjoint(target.features)
        if there and operands in dot.operands and target.architecture in dot.architectures:
            return dot
    return None
