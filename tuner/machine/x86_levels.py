"""The micro-architecture levels of x86-64 as targets.

A level is a set of instructions, not a machine. Its caches are those of a small core of its time,
so that a schedule for the level suits most machines. Source: System V ABI, AMD64 supplement,
section 3.1.1 (micro-architecture levels).
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.schedules.target import Cache, Target

from ..isa.instruction_set import vector_shape
from ..isa.x86 import BASE_CPU, X86_64

_BASELINE = ("64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
_V2 = (*_BASELINE, "crc32", "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")

BASELINE_LEVEL = BASE_CPU
"""The level that every 64-bit x86 CPU has."""

_LEVELS = {BASELINE_LEVEL: _BASELINE, "x86-64-v2": _V2, "x86-64-v3": _V3, "x86-64-v4": _V4}
LEVELS = tuple(_LEVELS)

_CACHES = (
    Cache(32 << 10, ways=8),
    Cache(256 << 10, ways=8),
    Cache(8 << 20, ways=16, shared=True),
)
_CACHES_V4 = (
    Cache(32 << 10, ways=8),
    Cache(1 << 20, ways=16),
    Cache(22 << 20, ways=11, shared=True),
)
_TRIPLE = f"{X86_64}-unknown-linux-gnu"


def level_target(name: str, threads: int = 1) -> Target:
    """Return the target of one of `LEVELS`, for kernels of up to `threads` threads. Raise
    TargetError if `threads` is less than 1."""
    features = _LEVELS[name]
    bits, registers = vector_shape(X86_64, features)
    return Target(
        triple=_TRIPLE,
        cpu=name,
        features=tuple(sorted(features)),
        vector_bits=bits,
        vector_registers=registers,
        caches=_CACHES_V4 if bits == 512 else _CACHES,
        cores=max(threads, 4),
        threads=1,
    ).with_threads(threads)


def is_well_known(target: Target, triple: str, cpu: str, features: Collection[str]) -> bool:
    """Return whether LLVM certainly compiles for `target`.

    That is so if (1) `target` is a level, or (2) it has this triple and CPU, and only features that
    are in `features`.
    """
    if is_level(target.cpu):
        level = level_target(target.cpu)
        return (target.triple, target.features) == (level.triple, level.features)
    return (target.triple, target.cpu) == (triple, cpu) and set(features).issuperset(
        target.features
    )


def is_level(cpu: str) -> bool:
    """Return whether `cpu` names a level instead of a CPU model."""
    return cpu in _LEVELS
