"""Rates of the target machine: probed values, or nominal values for a target without probes.

Nominal bandwidths assume that the first cache feeds all load ports and that each level behind it
delivers half the bandwidth of the level before. Nominal rates suffice to rank candidates, but not
to predict absolute times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.schedules.dtypes import DType
from tilewright.schedules.hardware import FMA_PIPES, LINES_TO_FOLLOW, LOAD_PORTS, USABLE_SHARE
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

COST_OF_AN_EXPOSED_LINE = 4.0
"""Cost of an exposed line, in line transfers from the level that holds all data. Several misses are
in flight. Source: measured, `python -m benchmarks.prior constants`."""

NOMINAL_CLOCK_HZ = 3.4e9
"""Clock of a target without a probed clock. Source: a round figure of server cores."""


@dataclass(frozen=True, slots=True)
class MachineRates:
    """Rates for one element type. Index p - 1 of a per-thread tuple is the value for p threads.

    `fma_pipes`: vectors multiplied and added per cycle of `clock_hz`. `peak_flops`: flop/s.
    `bandwidth[level]`: read bandwidth in bytes/s of "L1", "L2", "L3" and "memory", for the levels
    that the target has. `cache_bytes[i]`: bytes of level i available to one thread.
    `all_cache_bytes[i]`: bytes of one instance of level i. `vector_bytes` and `element_bytes`: size
    of a vector register and of one lane. `region_secs`: overhead of a parallel region in seconds.
    `probed`: whether peak and memory bandwidth were measured instead of assumed.
    `late_cycles[i]`: cycles by which a line of another page takes longer than a line of a stream
    from level i, 0 if unprobed. `exposed_cycles[i]`: cycles that a unit of the count
    `exposed_lines` costs if the line comes from level i. `far_conflict_cycles`: cycles of a line
    that a stride evicted from L2. `reread_cycles`: cycles of a line of another page that is read
    again in place.
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
    late_cycles: tuple[float, ...]
    exposed_cycles: tuple[float, ...]
    far_conflict_cycles: float
    reread_cycles: float

    @property
    def bytes_per_cycle(self) -> tuple[float, ...]:
        """Read bandwidth of one thread from each of `levels`, in bytes per cycle."""
        return tuple(self.bandwidth[level][0] / self.clock_hz for level in self.levels)


def compute_dtype(workload: Workload) -> DType:
    """Return the type whose arithmetic determines the speed: f64 if any tensor is f64, else f32 if
    any tensor is a float, else the widest integer type."""
    dtypes = {tensor.dtype for tensor in workload.tensors.values()}
    if DType.F64 in dtypes:
        return DType.F64
    if any(dtype.is_float for dtype in dtypes):
        return DType.F32
    return DType.I64 if DType.I64 in dtypes else DType.I32


def level_behind_second_cache(levels: Sequence[str]) -> str:
    """Return the level that serves misses of the second cache: memory if there is no third one."""
    return levels[min(2, len(levels) - 1)]


def machine_for(target: Target, dtype: DType) -> MachineRates:
    """Return the rates of `target` for arithmetic on `dtype`. If the peak of `dtype` was not
    probed, the peak of the float type of the same size is used: this is accurate enough to rank
    candidates, not to reject a measured time as implausible.

    The number of multiply-adds per cycle follows from peak and clock as peak / (2 flop * lanes *
    clock). It may be fractional: a core with half-width units takes two cycles per vector. If the
    clock was not probed, it is computed from the peak and `FMA_PIPES`.
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
    rates = tuple(bandwidth[level][0] / clock_hz for level in levels)
    strided = tuple(target.probes.strided(level) * 1e9 / clock_hz for level in levels)
    line_bytes = target.line_bytes
    late = tuple(
        max(line_bytes / apart - line_bytes / rate, 0.0) if apart else 0.0
        for rate, apart in zip(rates, strided, strict=True)
    )
    behind_second = levels.index(level_behind_second_cache(levels))
    first_share = LINES_TO_FOLLOW / (LINES_TO_FOLLOW + 1.0)  # of a run of one line
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
        late_cycles=late,
        exposed_cycles=tuple(
            cycles / (COST_OF_AN_EXPOSED_LINE * first_share) if apart else line_bytes / rate
            for cycles, rate, apart in zip(late, rates, strided, strict=True)
        ),
        far_conflict_cycles=line_bytes / (strided[behind_second] or rates[behind_second]),
        reread_cycles=line_bytes / strided[1]
        if len(levels) > 2 and strided[1]
        else line_bytes / (USABLE_SHARE * rates[-2]),
    )
