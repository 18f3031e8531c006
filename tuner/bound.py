"""The bound a kernel is held against: no schedule of the workload can be faster on this target.

min over p <= threads of max(operations at the peak of p cores, operation mix in cycles,
bytes at the bandwidth of the level the data lives in), plus a parallel region if p > 1.
Source: the roofline model (Williams, Waterman and Patterson, CACM 52(4), 2009,
doi:10.1145/1498765.1498785), with the cache level the whole problem fits in for "memory".
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from costmodel.machine import Machine, compute_dtype, machine_for
from schedules.affine import Cond, Ge0
from schedules.scalar import (
    All,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Reducer,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    children,
)
from schedules.target import Target
from schedules.workload import Stage, Workload

_MATH_SLOTS = 6
"""Pipe slots of exp, tanh, erf and the like: the shortest f32 polynomials use no fewer."""


@dataclass(frozen=True, slots=True)
class Bound:
    """`secs` of one call; `binds` is "compute" or the level the bytes come from ("L2", "memory").

    `probed` is False where the target's peak or bandwidth was assumed rather than measured: such a
    bound is for information and ends no search. `peak_gflops` and `bandwidth_gbs` (main memory)
    are those for all the target's threads and the workload's arithmetic type.
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
    slots = sum(pipe_slots(stage) for stage in workload.stages)
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
        probed=machine.probed,
    )


def _memory_gbs(machine: Machine) -> float:
    return machine.bandwidth["memory"][-1] / 1e9


def home_level(data_bytes: int, target: Target, threads: int) -> str:
    """The innermost level that holds `data_bytes` when `threads` cores share them out."""
    for i, cache in enumerate(target.caches[:3]):
        if data_bytes <= cache.bytes * (1 if cache.shared else threads):
            return f"L{i + 1}"
    return "memory"


def pipe_slots(stage: Stage) -> float:
    """Fewest lane-slots of the arithmetic pipes that one call of `stage` needs.

    A multiplication whose result is only added is one slot with that addition. Products with
    padding (an operand that is 0 where a condition on indices fails) are left out.
    """
    ranges = {axis.name: axis.extent for axis in (*stage.axes, *stage.reduce_axes)}
    points = prod(ranges.values())
    inside = _useful_share(stage.body, ranges) if stage.reducer is Reducer.SUM else 1.0
    each = _slots(stage.body)
    if stage.reducer is not None:
        fused = stage.reducer is Reducer.SUM and _is_product(stage.body)
        each += 0 if fused else 1
    return points * inside * each


def _is_product(node: Scalar) -> bool:
    while isinstance(node, Cast):
        node = node.x
    return isinstance(node, Binary) and node.op is BinaryOp.MUL


def _slots(node: Scalar) -> int:
    match node:
        case Select():
            return min(_slots(node.on_true), _slots(node.on_false))
        case Binary(op=BinaryOp.ADD | BinaryOp.SUB, a=a, b=b):
            return _slots(a) + _slots(b) + (0 if _is_product(a) or _is_product(b) else 1)
        case Binary(a=a, b=b):
            return _slots(a) + _slots(b) + 1
        case Unary(op=op):
            return _slots(node.x) + (_MATH_SLOTS if op in _TRANSCENDENTAL else 1)
        case _:
            return sum(_slots(child) for child in children(node))


def _useful_share(node: Scalar, ranges: dict[str, int]) -> float:
    """Share of a sum's terms that are not zero by a condition on indices, 0..1."""
    match node:
        case Cast():
            return _useful_share(node.x, ranges)
        case Binary(op=BinaryOp.MUL, a=a, b=b):
            # Two guards may overlap: the smaller share alone is certainly useful at most.
            return min(_useful_share(a, ranges), _useful_share(b, ranges))
        case Select(cond=All(conds=conds), on_false=Const(value=0)):
            return _share_where(conds, ranges)
        case _:
            return 1.0


def _share_where(conds: tuple[Cond, ...], ranges: dict[str, int]) -> float:
    """Share of the index points at which all `conds` hold, counted axis group by axis group."""
    share = 1.0
    for names, group in _independent(conds):
        extents = [ranges[name] for name in names]
        if prod(extents) > _MOST_COUNTED:
            continue
        grid = np.meshgrid(*(np.arange(e) for e in extents), indexing="ij", sparse=True)
        env: dict[str, Any] = dict(zip(names, grid, strict=True))
        true: Any = np.ones(extents, bool)
        for cond in group:
            value = cond.index.evaluate(env)
            true = true & (value >= 0 if isinstance(cond, Ge0) else value == 0)
        share *= float(np.mean(true))
    return share


def _independent(conds: tuple[Cond, ...]) -> list[tuple[tuple[str, ...], list[Cond]]]:
    """The conditions in groups that share no variable, each with its variables, sorted."""
    groups: list[tuple[set[str], list[Cond]]] = []
    for cond in conds:
        names, members = set(cond.index.vars()), [cond]
        apart = []
        for other in groups:
            if names & other[0]:
                names |= other[0]
                members = other[1] + members
            else:
                apart.append(other)
        groups = [*apart, (names, members)]
    return [(tuple(sorted(names)), members) for names, members in groups if names]


_MOST_COUNTED = 1 << 22
_TRANSCENDENTAL = frozenset({UnaryOp.EXP, UnaryOp.LOG, UnaryOp.TANH, UnaryOp.ERF, UnaryOp.SIGMOID})
