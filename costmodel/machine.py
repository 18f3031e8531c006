"""Rates of the machine that a candidate would run on: probed, or nominal.

A target without probes can be predicted for with nominal values: the first cache feeds all load
ports, and each level behind it gives half of the bandwidth of the level before. That is enough for
ranking candidates; a time in seconds needs probes.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.dtypes import DType
from tilewright.schedules.hardware import FMA_PIPES, LOAD_PORTS
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

NOMINAL_CLOCK_HZ = 3.4e9
"""Source: a round figure of server cores."""


@dataclass(frozen=True, slots=True)
class MachineRates:
    """Rates for one element type. Entries of the per-thread tuples: index p - 1 for p threads.

    `fma_pipes` vectors are multiplied and added in each cycle of `clock_hz`.
    `peak_flops` in flop/s; `bandwidth[level]` in bytes/s, read, for "L1", "L2", "L3", "memory" as
    far as the target has those levels; `cache_bytes[i]` is what one thread may fill of level i,
    `all_cache_bytes[i]` what all threads together may, of one copy of that level.
    `vector_bytes` and `element_bytes` are those of a register, and of one of its lanes.
    `region_secs` is what a parallel region takes.
    `probed` says whether peak and memory bandwidth were measured, not assumed.
    """

    clock_hz: float
    fma_pipes: float
    vector_bytes: int
    element_bytes: int
    vector_registers: int
    threads: int
    cache_bytes: tuple[float, ...]
    all_cache_bytes: tuple[float, ...]
    line_bytes: int
    levels: tuple[str, ...]
    peak_flops: tuple[float, ...]
    bandwidth: dict[str, tuple[float, ...]]
    region_secs: float
    probed: bool

    @property
    def bytes_per_cycle(self) -> tuple[float, ...]:
        """What one thread reads of each of `levels`."""
        return tuple(self.bandwidth[level][0] / self.clock_hz for level in self.levels)


def compute_dtype(workload: Workload) -> DType:
    """The type whose arithmetic sets the pace: f64 if any tensor is f64, else f32, else int."""
    dtypes = {tensor.dtype for tensor in workload.tensors.values()}
    if DType.F64 in dtypes:
        return DType.F64
    if any(dtype.is_float for dtype in dtypes):
        return DType.F32
    return DType.I64 if DType.I64 in dtypes else DType.I32


def machine_for(target: Target, dtype: DType) -> MachineRates:
    """The rates of `target` for arithmetic on `dtype`. Where its peak was not probed, that of the
    float of its size stands in: enough to rank candidates, not to call a time implausible.

    Peak and clock say how many multiply-adds a cycle there are: peak / (2 flop * lanes * clock);
    a core may have half vectors and take two cycles for a whole one. Where the clock was not
    probed, it is the one that explains the peak with `FMA_PIPES`.
    """
    lanes = target.lanes(dtype)
    threads = range(1, target.threads + 1)
    alike = DType.F64 if dtype.bits == 64 else DType.F32
    per_cycle = 2.0 * lanes * FMA_PIPES
    single = (target.probes.peak(dtype, 1) or target.probes.peak(alike, 1)) * 1e9
    clock_hz = target.probes.clock_ghz * 1e9
    if not clock_hz:
        clock_hz = single / per_cycle if single > 0 else NOMINAL_CLOCK_HZ
    pipes = single / (2.0 * lanes * clock_hz) if single > 0 else float(FMA_PIPES)
    peaks = tuple(
        (target.probes.peak(dtype, p) or target.probes.peak(alike, p)) * 1e9
        or per_cycle * clock_hz * p
        for p in threads
    )
    levels = (*(f"L{i + 1}" for i in range(min(len(target.caches), 3))), "memory")
    vector_bytes = target.vector_bits // 8
    first_cache = LOAD_PORTS * vector_bytes * clock_hz
    bandwidth = {
        level: tuple(
            target.probes.bandwidth(level, p) * 1e9 or first_cache * p / 2**behind for p in threads
        )
        for behind, level in enumerate(levels)
    }
    return MachineRates(
        clock_hz=clock_hz,
        fma_pipes=pipes,
        vector_bytes=vector_bytes,
        element_bytes=vector_bytes // lanes,
        vector_registers=target.vector_registers,
        threads=target.threads,
        cache_bytes=tuple(
            c.bytes / target.threads if c.shared else float(c.bytes) for c in target.caches[:3]
        ),
        all_cache_bytes=tuple(float(c.bytes) for c in target.caches[:3]),
        line_bytes=target.line_bytes,
        levels=levels,
        peak_flops=peaks,
        bandwidth=bandwidth,
        region_secs=target.probes.parallel_region_secs,
        probed=single > 0 and target.probes.bandwidth("memory", 1) > 0,
    )
