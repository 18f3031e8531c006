"""The right kernels that miscompiles are planted in: schedules from the spaces, of every kind.

They are written down, not searched for, and made for one described machine, so that the same
seed plants the same mistakes wherever AVX2 code runs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.schedules import operators
from tilewright.schedules.frontend.notation import from_notation, parse_tensor_spec
from tilewright.schedules.lowering.lower import lower
from tilewright.schedules.nest.loop_ir import Nest
from tilewright.schedules.target import Cache, Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

_FILE = Path(__file__).with_name("bases.json")
TARGET = Target(
    triple="x86_64-unknown-linux-gnu",
    cpu="x86-64-v3",
    features=("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt"),
    vector_bits=256,
    vector_registers=16,
    caches=(Cache(32 << 10, 8), Cache(256 << 10, 8)),
    cores=4,
)


@dataclass(frozen=True)
class Base:
    """One right kernel: `nest` is the cleaned nest of `trace` on `workload`'s normal form."""

    name: str
    workload: Workload
    trace: Trace
    target: Target

    @property
    def nest(self) -> Nest:
        return lower(self.workload, self.trace)


def load_bases() -> dict[str, Base]:
    """All of them by name."""
    return {
        name: Base(
            name,
            _workload(entry).normalised(),
            Trace.from_json(entry["trace"]),
            TARGET.with_threads(entry["threads"]),
        )
        for name, entry in json.loads(_FILE.read_text()).items()
    }


def _workload(entry: dict[str, Any]) -> Workload:
    """An operator of the library or, with `expression` and `tensors`, one in index notation."""
    if "operator" in entry:
        return operators.build(entry["operator"], entry["parameters"])
    return from_notation(entry["expression"], [parse_tensor_spec(t) for t in entry["tensors"]])
