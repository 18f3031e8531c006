"""The machines that the prior is judged on: this one, and this one without AVX-512."""

from __future__ import annotations

from dataclasses import replace

from tilewright.schedules.target import Target
from tilewright.tuner.machine.native_target import load_target
from tilewright.tuner.machine.probe import probe_target
from tilewright.tuner.machine.x86_levels import level_target

AVX2_CPU = "haswell"
"""LLVM's name of the first CPU with AVX2 and FMA; its scheduling model is used for the code."""


def target_of(machine: str) -> Target:
    """Return this machine with its probes, for kernels of one thread.

    It is held to AVX2 if the name `machine` ends so.
    """
    native = load_target("native", probe=True)
    return held_to_avx2(native) if machine.endswith("avx2") else native


def held_to_avx2(native: Target) -> Target:
    """Return `native` with 16 vector registers of 256 bits, and with probes of such code."""
    level = level_target("x86-64-v3")
    held = replace(
        native,
        cpu=AVX2_CPU,
        features=level.features,
        vector_bits=level.vector_bits,
        vector_registers=level.vector_registers,
    )
    return replace(held, probes=probe_target(held))
