"""Rates of the machine a candidate would run on: what was probed, or a nominal value instead.

A target without probes is still a machine one can predict for: its clock and bandwidths are then
nominal ones. A ranking of candidates hardly needs more; a time in seconds does.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedules.dtypes import DType
from schedules.target import Target
from schedules.workload.workload import Workload

FMA_PIPES = 2
"""Vector multiply-add units a core of every server CPU since 2014 has, at its widest vector."""

NOMINAL_CLOCK_HZ = 3.4e9
NOMINAL_BYTES_PER_CYCLE = {"L1": 64.0, "L2": 32.0, "L3": 12.0}
NOMINAL_MEMORY_GBS = 20.0
QUIET_REGION_SECS = 0.5e-6
"""A parallel region where nobody else wants the cores; a busy machine shows four times that."""


REGION_DOUBT_SECS = 0.8e-6
"""What a parallel region may take beyond what a probe of it shows. At its start and its end threads
hand each other some six cache lines. What that takes depends on which cores they run on, which
virtual machines are dealt anew several times a second, whenever they rest: 0.45 to 0.55 us a region
or 1.2 to 1.4, on one machine in one minute. A short measurement meets one of the two."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates for one element type. Entries of the per-thread tuples: index p - 1 for p threads.

    `peak_flops` in flop/s; `bandwidth[level]` in bytes/s, read, for "L1", "L2", "L3", "memory" as
    far as the target has those levels; `cache_bytes[i]` is what one thread may fill of level i,
    `all_cache_bytes[i]` what all threads together may, of one copy of that level.
    `region_secs` is a parallel region at its best, `relied_on_region_secs` wherever threads run.
    `probed` says whether peak and memory bandwidth were measured, not assumed.
    """

    clock_hz: float
    lanes: int
    vector_registers: int
    threads: int
    cache_bytes: tuple[float, ...]
    all_cache_bytes: tuple[float, ...]
    line_bytes: int
    levels: tuple[str, ...]
    peak_flops: tuple[float, ...]
    bandwidth: dict[str, tuple[float, ...]]
    region_secs: float
    relied_on_region_secs: float
    probed: bool


def compute_dtype(workload: Workload) -> DType:
    """The type whose arithmetic sets the pace: f64 if any tensor is f64, else f32, else int."""
    dtypes = {tensor.dtype for tensor in workload.tensors.values()}
    if DType.F64 in dtypes:
        return DType.F64
    if any(dtype.is_float for dtype in dtypes):
        return DType.F32
    return DType.I64 if DType.I64 in dtypes else DType.I32


def machine_for(target: Target, dtype: DType) -> Machine:
    """The rates of `target` for arithmetic on `dtype`; f32's peak stands in for i32's.

    The clock is the one that explains the measured peak: peak / (2 flop * lanes * pipes).
    """
    lanes = target.lanes(dtype)
    threads = range(1, target.threads + 1)
    alike = DType.F64 if dtype.bits == 64 else DType.F32
    per_cycle = 2.0 * lanes * FMA_PIPES
    single = (target.probes.peak(dtype, 1) or target.probes.peak(alike, 1)) * 1e9
    clock_hz = single / per_cycle if single > 0 else NOMINAL_CLOCK_HZ
    peaks = tuple(
        (target.probes.peak(dtype, p) or target.probes.peak(alike, p)) * 1e9
        or per_cycle * clock_hz * p
        for p in threads
    )
    levels = tuple(f"L{i + 1}" for i in range(min(len(target.caches), 3)))
    bandwidth = {
        level: tuple(
            target.probes.bandwidth(level, p) * 1e9 or NOMINAL_BYTES_PER_CYCLE[level] * clock_hz * p
            for p in threads
        )
        for level in levels
    }
    bandwidth["memory"] = tuple(
        target.probes.bandwidth("memory", p) * 1e9 or NOMINAL_MEMORY_GBS * 1e9 for p in threads
    )
    region_secs = target.probes.parallel_region_secs
    if target.probes.doubtful:
        region_secs = min(region_secs, QUIET_REGION_SECS)
    return Machine(
        clock_hz=clock_hz,
        lanes=lanes,
        vector_registers=target.vector_registers,
        threads=target.threads,
        cache_bytes=tuple(
            c.bytes / target.threads if c.shared else float(c.bytes) for c in target.caches[:3]
        ),
        all_cache_bytes=tuple(float(c.bytes) for c in target.caches[:3]),
        line_bytes=target.caches[0].line_bytes,
        levels=(*levels, "memory"),
        peak_flops=peaks,
        bandwidth=bandwidth,
        region_secs=region_secs,
        relied_on_region_secs=region_secs + REGION_DOUBT_SECS,
        probed=single > 0 and target.probes.bandwidth("memory", 1) > 0,
    )
