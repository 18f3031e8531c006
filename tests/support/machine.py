"""This machine, known without being probed: probing takes a second when it is quiet, and is
repeated every minute while it is busy, as it is during tests."""

from __future__ import annotations

from pathlib import Path

from tilewright.schedules.target import Probes
from tilewright.tuner.machine.native_target import native_target

PROBES = Probes(
    peak_gflops={
        "f32": [260.0, 520.0], "f64": [130.0, 260.0], "i32": [90.0, 180.0],
        "bf16": [260.0, 520.0], "f16": [260.0, 520.0],
    },
    bandwidth_gbs={
        "L1": [500.0, 980.0], "L2": [240.0, 470.0], "L3": [100.0, 200.0], "memory": [40.0, 40.0],
    },
    parallel_region_secs=1e-6,
    clock_ghz=4.0,
)  # fmt: skip
"""Those of two cores of a Zen 5."""


def keep_probes(cache_home: Path) -> None:
    """Commands with `cache_home` as their XDG_CACHE_HOME take `PROBES` for this machine's."""
    native_target(cache_dir=cache_home / "tilewright", prober=lambda _: PROBES)
