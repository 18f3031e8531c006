"""Races the best kernel of a database against NumPy and PyTorch, on equal instruction sets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.suite.machine import busy_share
from tilewright.peers.bench import bench
from tilewright.schedules import Workload
from tilewright.schedules.errors import TilewrightError
from tilewright.schedules.target import Target
from tilewright.service.answers.stored import answer

HELD_TO_AVX2 = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
}
"""The documented variables that hold PyTorch's own loops, oneDNN, MKL and OpenBLAS to AVX2. MKL
ignores its variable on processors that are not by Intel; there it uses AVX2 (Zen 4, MKL 2024.2)."""


@dataclass(frozen=True, slots=True)
class Race:
    """The `peers` of a race ("numpy", "torch"), and its length without their preparation.

    `torch.compile` may take `compile_secs`; 0 excludes it.
    """

    peers: tuple[str, ...]
    seconds: float
    compile_secs: float


def instruction_limits(machine: str) -> dict[str, str]:
    """Return the variables that hold the libraries to the instructions of `machine`, a name that
    `benchmarks.prior.machines.target_of` takes."""
    if not machine.endswith("avx2"):
        return {}
    return HELD_TO_AVX2 | {"NPY_DISABLE_CPU_FEATURES": ",".join(_numpy_features_above_avx2())}


def _numpy_features_above_avx2() -> list[str]:
    """Return the names of the features beyond AVX2 that loops of this version of NumPy use."""
    built = np.show_config(mode="dicts")
    simd = built["SIMD Extensions"] if built else {}
    names = [*simd.get("found", ()), *simd.get("not found", ())]
    return [name for name in names if name.startswith(("AVX512", "X86_V4"))]


def raced(
    race: Race, workload: Workload, target: Target, machine: str, database: str
) -> dict[str, Any]:
    """Return the document of `bench --json` for the best kernel of `workload` in `database`, with
    the variables of the libraries, `environment`, and the cores that other processes used before
    the race, `busy_share`; or an `error`."""
    environment, busy = instruction_limits(machine), busy_share()
    try:
        report = bench(
            workload,
            answer(database, workload, target, "exact").trace,
            target,
            against=race.peers,
            seconds=race.seconds,
            compile_secs=race.compile_secs,
            environment=environment,
        )
    except TilewrightError as error:
        return {"error": str(error)}
    return report.to_json() | {"environment": environment, "busy_share": busy}
