"""The roofline bound: no schedule of the workload can be faster on this target.

For each number of cores p <= threads there are two times: the operations at the peak of p cores,
and the bytes at the bandwidth of the level that holds the data. The longer one counts, plus the
time of a parallel region if p > 1. The bound is the minimum over p.

The form of the workload with the fewest operations is used. Operations on narrow operands count at
the rate of the machine's fastest instructions, even if the code generator does not use these
instructions (`instruction_rates.py`). If that rate is not probed, the bound ends no search. Source:
the roofline model (Williams, Waterman and Patterson, CACM 52(4), 2009,
doi:10.1145/1498765.1498785). The innermost cache that holds the whole problem takes the place of
memory.

Rates are the best that this machine has reached (`probe_merging.py`). A kernel that is faster than
the bound by more than the error of a probe proves that these rates are too low
(`tuner/session/roofline_bound.py`).
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.costmodel.machine import MachineRates, machine_for
from tilewright.schedules.dtypes import DType
from tilewright.schedules.target import Probes, Target
from tilewright.schedules.workload.workload import Workload

from .bound import Bound
from .instruction_rates import InstructionRates, rates_for
from .least_work import Work, least_work
from .probe_merging import raised_bandwidth, raised_peak


def bound_for(workload: Workload, target: Target) -> Bound:
    """Return the bound of the least work of `workload`. Use it if there is no space, which has the
    forms."""
    return bound_of(least_work(workload), target)


def bound_of(work: Work, target: Target) -> Bound:
    """Return the bound of one call that does `work`. The data are in the innermost cache that holds
    them.

    If the probes are doubtful, no parallel region is added, because on a busy machine its measured
    time is several times too long.
    """
    machine = machine_for(target, work.dtype)
    parts = _parts(work, target, machine)
    choices = []
    for p in range(1, target.threads + 1):
        compute = _compute_secs(parts, p)
        level = home_level(work.min_bytes, target, p)
        memory = work.min_bytes / machine.bandwidth[level][p - 1]
        region = 0.0 if p == 1 or target.probes.doubtful else machine.region_secs
        binds = "compute" if compute >= memory else level
        choices.append((max(compute, memory) + region, p, binds))
    secs, threads, binds = min(choices)
    return Bound(
        secs=secs,
        binds=binds,
        threads=threads,
        peak_gflops=machine.peak_flops[-1] / 1e9,
        bandwidth_gbs=machine.bandwidth["memory"][-1] / 1e9,
        probed=machine.probed
        and not target.probes.doubtful
        and (binds != "compute" or all(rates.probed for _, rates in parts)),
        least_secs=_least_secs(parts, target),
        by="+".join(dict.fromkeys(rates.by for _, rates in parts)),
    )


def _parts(
    work: Work, target: Target, machine: MachineRates
) -> list[tuple[float, InstructionRates]]:
    """Return pairs of a number of operations and their rates. A slot is two operations."""
    own = InstructionRates(work.dtype.value, machine.peak_flops, machine.probed)
    f32 = machine_for(target, DType.F32).peak_flops
    narrow = ((slots, rates_for(kind, target, f32)) for kind, slots in work.narrow)
    parts = [(2.0 * slots, rates) for slots, rates in narrow if rates is not None]
    rest = 2.0 * work.slots - sum(operations for operations, _ in parts)
    return [*parts, (rest, own)] if rest > 1e-9 * work.slots or not parts else parts


def _compute_secs(parts: list[tuple[float, InstructionRates]], threads: int) -> float:
    return sum(operations / rates.flops[threads - 1] for operations, rates in parts)


def _least_secs(parts: list[tuple[float, InstructionRates]], target: Target) -> float:
    """Return the time of the operations on all cores, each at its single-core peak.

    Return 0.0 if one of these peaks was not probed. A correct kernel may be faster
    than the f32 peak, which would replace it.
    """
    if not all(rates.probed and target.probes.peak_of(rates.by, 1) for _, rates in parts):
        return 0.0
    return _compute_secs(parts, 1) / target.threads


def shown_by_kernel(work: Work, target: Target, secs: float) -> Probes:
    """Return the target's probes, raised to the rates of a kernel that takes `secs` per call.

    Only bytes that the inner caches cannot hold count for the level that holds the data. The
    arithmetic rate is raised at most to the peak of all cores. If the kernel is still faster than
    the bound, no probe explains it.
    """
    probes, threads = target.probes, target.threads
    if secs >= bound_of(work, target).secs:
        return probes
    parts = _parts(work, target, machine_for(target, work.dtype))
    if len(parts) == 1:  # with several parts, it is unknown which one is faster than its probe
        ((operations, rates),) = parts
        gflops = operations / secs / 1e9
        if 0 < probes.peak_of(rates.by, threads) < gflops:
            probes = raised_peak(probes, rates.by, threads, gflops)
    level = home_level(work.min_bytes, target, threads)
    inside = [
        cache.bytes * (1 if cache.shared else threads)
        for i, cache in enumerate(target.caches[:3])
        if f"L{i + 1}" < level  # "memory" is sorted after all caches
    ]
    gbs = (work.min_bytes - sum(inside)) / secs / 1e9
    if 0 < probes.bandwidth(level, threads) < gbs:
        probes = raised_bandwidth(probes, level, threads, gbs)
    rest = bound_of(work, replace(target, probes=replace(probes, parallel_region_secs=0.0))).secs
    if threads > 1 and rest < secs < rest + probes.parallel_region_secs:
        probes = replace(probes, parallel_region_secs=secs - rest, doubtful=True)
    return probes


def home_level(data_bytes: int, target: Target, threads: int) -> str:
    """Return the innermost level that holds `data_bytes`, divided among `threads` cores."""
    for i, cache in enumerate(target.caches[:3]):
        if data_bytes <= cache.bytes * (1 if cache.shared else threads):
            return f"L{i + 1}"
    return "memory"
