"""The bound a kernel is held against: no schedule of the workload can be faster on this target.

min over p <= threads of max(operations at the peak of p cores, operation mix in cycles,
bytes at the bandwidth of the level the data lives in), plus a parallel region if p > 1. Where the
workload allows rewrites, or its products gain by steps, their operations count if they are fewer.
Source: the roofline model (Williams, Waterman and Patterson, CACM 52(4), 2009,
doi:10.1145/1498765.1498785), with the cache level the whole problem fits in for "memory".

Rates are the most this machine has shown (`tuner/machine/probed.py`); a kernel that is faster than
the bound by more than a probe's error proves them too low: see `tuner/session/limit.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from costmodel.machine import Machine, compute_dtype, machine_for
from schedules.algebra.scalar import (
    Binary,
    BinaryOp,
    Cast,
    Reducer,
    Scalar,
    Select,
    Unary,
    children,
    loads,
    vars_of,
)
from schedules.sketches.forms.regrouping import regrouped
from schedules.sketches.forms.rewriting import rewrites_for, rewritten
from schedules.target import Probes, Target
from schedules.workload.flops import counted_flops, useful_flops
from schedules.workload.tensors import Stage
from schedules.workload.workload import Workload

from .probed import raised_bandwidth, raised_peak


@dataclass(frozen=True, slots=True)
class Bound:
    """`secs` of one call; `binds` is "compute" or the level the bytes come from ("L2", "memory").

    `probed` is False where the target's peak or bandwidth was assumed rather than measured, or
    measured on a busy machine: such a bound is for information and ends no search. `peak_gflops`
    and `bandwidth_gbs` (main memory) are those for all the target's threads and the workload's
    arithmetic type.
    """

    secs: float
    binds: str
    threads: int
    peak_gflops: float
    bandwidth_gbs: float
    probed: bool


def bound(workload: Workload, target: Target) -> Bound:
    """The bound of one call of `workload` with inputs and outputs where they fit."""
    machine = machine_for(target, compute_dtype(workload))
    slots = _fewest_slots(workload)
    choices = []
    for p in range(1, target.threads + 1):
        # A pipe slot is one lane of one FMA: the peak counts two operations for it.
        compute = 2.0 * slots / machine.peak_flops[p - 1]
        level = home_level(workload.min_bytes, target, p)
        memory = workload.min_bytes / machine.bandwidth[level][p - 1]
        region = machine.region_secs if p > 1 else 0.0
        binds = "compute" if compute >= memory else level
        choices.append((max(compute, memory) + region, p, binds))
    secs, threads, binds = min(choices)
    return Bound(
        secs=secs,
        binds=binds,
        threads=threads,
        peak_gflops=machine.peak_flops[-1] / 1e9,
        bandwidth_gbs=_memory_gbs(machine),
        probed=machine.probed and not target.probes.doubtful,
    )


def least_secs(workload: Workload, target: Target) -> float:
    """What all cores together need for the operations alone, each at the peak of a single one.

    Not even wrong probes of several threads, or of caches, make this longer than it is.
    """
    machine = machine_for(target, compute_dtype(workload))
    return 2.0 * _fewest_slots(workload) / (target.threads * machine.peak_flops[0])


def shown_by_kernel(workload: Workload, target: Target, secs: float) -> Probes:
    """The target's probes, raised to what a kernel of `secs` a call surely did on its threads.

    Of the bytes from the level the data lives in, those count that the caches inside of it cannot
    hold; arithmetic counts as far as the cores together can do it. The rest is no probe's fault.
    """
    probes, threads = target.probes, target.threads
    if secs >= bound(workload, target).secs:
        return probes
    dtype = compute_dtype(workload)
    gflops = 2.0 * _fewest_slots(workload) / secs / 1e9
    if 0 < probes.peak(dtype, threads) < gflops:
        probes = raised_peak(probes, dtype, threads, gflops)
    level = home_level(workload.min_bytes, target, threads)
    inside = [
        cache.bytes * (1 if cache.shared else threads)
        for i, cache in enumerate(target.caches[:3])
        if f"L{i + 1}" < level  # "memory" comes after them all
    ]
    gbs = (workload.min_bytes - sum(inside)) / secs / 1e9
    if 0 < probes.bandwidth(level, threads) < gbs:
        probes = raised_bandwidth(probes, level, threads, gbs)
    rest = bound(workload, replace(target, probes=replace(probes, parallel_region_secs=0.0))).secs
    if threads > 1 and rest < secs < rest + probes.parallel_region_secs:
        probes = replace(probes, parallel_region_secs=secs - rest, doubtful=True)
    return probes


@lru_cache(maxsize=64)
def _fewest_slots(workload: Workload) -> float:
    """Of the workload as it is and of what it may be rewritten to."""
    form = workload.normalised()
    rewritten_forms = [rewritten(form, s) for s in (regrouped(form), *rewrites_for(form)) if s]
    return min(_useful_slots(form) for form in (workload, *rewritten_forms))


def _useful_slots(workload: Workload) -> float:
    # The share of the work that is not padding is known over all stages; so is the mix.
    share = useful_flops(workload) / max(counted_flops(workload), 1)
    ahead = _ahead_of_calls(workload)
    return share * sum(pipe_slots(s) for s in workload.stages if s.name not in ahead)


def _ahead_of_calls(workload: Workload) -> set[str]:
    """Stages that see constant inputs and nothing else: they can be computed once, before the
    first call. An output is written in every call."""
    known = {tensor.name for tensor in workload.constants}
    found = set[str]()
    for stage in workload.stages:
        reads = {load.tensor for load in loads(stage.body)}
        if reads and reads <= known and stage.name not in workload.outputs:
            known.add(stage.name)
            found.add(stage.name)
    return found


def _memory_gbs(machine: Machine) -> float:
    return machine.bandwidth["memory"][-1] / 1e9


def home_level(data_bytes: int, target: Target, threads: int) -> str:
    """The innermost level that holds `data_bytes` when `threads` cores share them out."""
    for i, cache in enumerate(target.caches[:3]):
        if data_bytes <= cache.bytes * (1 if cache.shared else threads):
            return f"L{i + 1}"
    return "memory"


def pipe_slots(stage: Stage) -> float:
    """Fewest lane-slots of the multiply-add pipes one call of `stage` needs, padding included.

    An operation counts once for each setting of the axes it depends on, however often it is
    written: what is the same is computed once, what does not change is computed outside. A
    multiplication whose result is only added is one slot with that addition. Additions and
    comparisons may run on other pipes, at most as many as there are for multiplications. What a
    choice computes on one side only is left out: it may not be taken.
    """
    extents = {axis.name: axis.extent for axis in (*stage.axes, *stage.reduce_axes)}
    multiplied, added = 0, 0
    for node in _computed(stage.body):
        times = prod(extents[name] for name in vars_of(node))
        match node:
            case Binary(op=BinaryOp.MUL | BinaryOp.DIV):
                multiplied += times
            case Binary(op=BinaryOp.ADD | BinaryOp.SUB, a=a, b=b):
                added += 0 if _is_product(a) or _is_product(b) else times
            case Unary(op=op):
                multiplied += op.function.slots * times
            case Binary():
                added += times
            case _:
                pass
    if stage.reducer is not None:
        fused = stage.reducer is Reducer.SUM and _is_product(stage.body)
        added += 0 if fused else prod(extents.values())
    return max(multiplied, (multiplied + added) / 2)


def _computed(node: Scalar) -> set[Scalar]:
    """Every different operation that is surely evaluated."""
    found: set[Scalar] = set()
    pending = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Binary | Unary):
            found.add(current)
        pending.extend([current.cond] if isinstance(current, Select) else children(current))
    return found


def _is_product(node: Scalar) -> bool:
    while isinstance(node, Cast):
        node = node.x
    return isinstance(node, Binary) and node.op is BinaryOp.MUL
