"""The properties of a target's instructions that code generation needs.

A new instruction set is a function here, or a module next to `x86.py` if it is long, and a line in
`instruction_set`. Code generation uses these properties and no feature names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.schedules.nest.instructions import FMA_F32
from tilewright.schedules.target import Target

from . import x86


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """The vector operations that are single instructions of a target, as far as generated code
    depends on them."""

    multiply_add: bool
    """`a * b + c` with one rounding."""
    floor: bool
    """`llvm.floor` of every lane."""
    halves: bool = False
    """LLVM's conversions between half and float."""
    masked_load_bits: int | None = None
    """The width in bits of the widest masked load that LLVM does not split, or None if there is no
    limit."""
    streams: tuple[int, ...] = ()
    """The sizes in bytes of the aligned vectors that have non-temporal stores."""
    stream_fence: str = ""
    """The intrinsic that orders non-temporal stores before later stores."""
    scaled_bits: frozenset[int] = frozenset()
    """The widths of the vectors that AVX-512 can scale by powers of two (`x86.SCALE`) and limit in
    magnitude (`x86.RANGE`)."""
    table_floats: int = 0
    """The number of floats in the largest table in a register that one instruction looks up, for a
    vector of as many lanes (`x86.PERMUTE`), or 0. The instruction set then has `multiply_add`."""


def instruction_set(target: Target) -> InstructionSet:
    """Return the properties of `target`. They depend on its architecture, its features and the size
    of its widest vectors."""
    return _instruction_set(target.architecture, target.features, target.vector_bits)


@lru_cache(maxsize=64)
def _instruction_set(
    architecture: str, features: tuple[str, ...], vector_bits: int
) -> InstructionSet:
    names = frozenset(name.lstrip("+") for name in features)
    if architecture in x86.ARCHITECTURES:
        return _x86(architecture, names, vector_bits)
    # This is right for AArch64, and a safe assumption for every other vector unit.
    has_floats = not names.isdisjoint({"neon", "v8a", "fp-armv8"})
    fma = FMA_F32.has_form_on(names)
    return InstructionSet(multiply_add=fma, floor=True, halves=has_floats)


def _x86(architecture: str, features: frozenset[str], vector_bits: int) -> InstructionSet:
    streams = architecture == x86.X86_64
    return InstructionSet(
        multiply_add=FMA_F32.has_form_on(features),
        # Wider vectors imply SSE 4.1, which is then not necessarily listed.
        floor=vector_bits > 128 or "sse4.1" in features,
        halves=not features.isdisjoint({"f16c", "avx512f"}),
        masked_load_bits=x86.masked_load_bits(features),
        streams=tuple(size for size in x86.STREAMS if size * 8 <= vector_bits) if streams else (),
        stream_fence=x86.STREAM_FENCE if streams else "",
        scaled_bits=x86.scaled_bits(features),
        table_floats=x86.table_floats(features),
    )


def vector_shape(architecture: str, features: Iterable[str]) -> tuple[int, int]:
    """Return `(vector_bits, vector_registers)` of a CPU with these LLVM features."""
    if architecture in x86.ARCHITECTURES:
        return x86.vector_shape(frozenset(features))
    return 128, 32  # right for NEON, and a safe assumption for every other vector unit


def feature_text(architecture: str, features: Sequence[str]) -> str:
    """Return LLVM's feature string for code that uses only `features`.

    LLVM enables all features of a named CPU. Therefore the string for x86-64 disables the other
    features.
    """
    if architecture == x86.X86_64:
        return x86.switches(features)
    return ",".join(f"+{name}" for name in features)


def instructions(target: Target) -> frozenset[str]:
    """Return the features of `target` that determine which instructions its code may use."""
    if target.architecture != x86.X86_64:
        return frozenset(target.features)
    return x86.closed(name for name in target.features if name in x86.BITS)
