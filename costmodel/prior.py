"""The analytic prior: predicted seconds of a candidate, with nothing measured.

A core is as slow as its busiest resource (multiply-add pipes, load ports, issue slots, the traffic
of each memory level), and a bit slower the busier the others are. A p-norm, between maximum and
sum, expresses that. Packing, spills, loop entries and parallel regions come on top. Parts of a
program run one after the other, and their times add up.

Source: the execution-cache-memory model (Stengel et al., ICS 2015, doi:10.1145/2751205.2751240)
with a p-norm for its overlap rule; FMA latency bound as in Low et al., "Analytical modeling is
enough for high-performance BLIS" (TOMS 43(2), 2016, doi:10.1145/2925987).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedules.algebra.functions import POLYNOMIAL_SLOTS
from tilewright.schedules.arrays import FloatArray, IntArray, distinct_rows
from tilewright.schedules.hardware import FMA_LATENCY
from tilewright.schedules.space import ScheduleSpace, SpacePart

from .counts.counting import counts, joined
from .counts.table import Counts
from .footprint import Traffic, cache_traffic
from .machine import MachineRates, compute_dtype, machine_for

COMPONENTS = ("pipes", "loads", "issue", "L2", "L3", "memory", "packing", "fixed")
"""The components of the predicted time; `L2` is what the second cache serves, and so on. All before
`packing` overlap."""

_SERVED, _PACKING, _FIXED = map(COMPONENTS.index, ("L2", "packing", "fixed"))

ISSUE_WIDTH = 6.0
"""Instructions a cycle. Published: LLVM's models of Zen 3 and 4 and of Sapphire Rapids; others have
four to eight."""

OPS_PER_LOOP_TRIP = 2.0
"""Instructions. Published: an addition, and a comparison that is one with its branch (Fog)."""

CYCLES_PER_LOOP_ENTRY = 13.0
"""The misprediction of the branch that leaves the loop. Published: the common case of AMD's family
19h (its optimisation guide); 11 to 20 on other cores (Fog)."""

OPS_IN_FLIGHT = 128.0
"""Vector instructions that wait in queues and schedulers while later ones execute. Published: what
those of Zen 3 and 4 hold (their optimisation guides); others have 97 to 210."""

OVERLAP_NORM = 4.0
"""Exponent of the p-norm between the slowest component alone and the sum of all. Source: measured,
`benchmarks/published/constants.txt`; 2, 3, 6, and the mean of the others instead, judge alike or
worse, and propose slower dilated windows."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """All the prior knows of P settings of one sketch.

    `secs` (P,) is the predicted time of a call; `components` (len(COMPONENTS), P) float32 are the
    parts in seconds, before overlap; `imbalance` (P,) is >= 1.
    """

    columns: Counts
    components: npt.NDArray[np.float32]
    imbalance: FloatArray
    secs: FloatArray

    def at(self, places: IntArray) -> Analysis:
        """That of the settings at `places` (Q,), in this order."""
        columns = {name: column[places] for name, column in self.columns.items()}
        components = self.components[:, places]
        return Analysis(columns, components, self.imbalance[places], self.secs[places])


class Prior:
    """Predicts for the candidates of one space. Stateless after construction.

    `check` is called before each calculation: what it raises ends a search that asks for many.
    """

    def __init__(
        self,
        space: ScheduleSpace,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.space = space
        self.check = check
        self.machine = machine_for(space.target, compute_dtype(space.workload))

    def analyse(self, sketch: int, settings: IntArray) -> Analysis:
        """The whole calculation for `settings` (P, J) of sketch number `sketch`. Parts of a program
        run one after the other, each with threads, traffic and tails of its own."""
        each = self._each(sketch, settings)
        if len(each) == 1:
            return each[0]
        secs = total(np.stack([part.secs for part in each]))
        shares = total(np.stack([part.secs * part.imbalance for part in each]))
        return Analysis(
            joined([part.columns for part in each]),
            total(np.stack([part.components for part in each])),
            shares / secs,
            secs,
        )

    def log2_secs(self, sketch: int, settings: IntArray) -> FloatArray:
        """(P,) log2 of the predicted seconds of a call."""
        secs = total(np.stack([part.secs for part in self._each(sketch, settings)]))
        return np.asarray(np.log2(secs))

    def _each(self, sketch: int, settings: IntArray) -> list[Analysis]:
        """The calculation for each part: once for each equivalence class, and for distinct settings
        only."""
        program = self.space.sketches[sketch]
        if len(program.parts) == 1:
            return [self._one(program.parts[0], settings)]
        own, found = program.split_settings(settings), dict[int, Analysis]()
        for group in program.equivalence_classes:
            distinct, places = distinct_rows(np.concatenate([own[n] for n in group]))
            analysis = self._one(program.parts[group[0]], distinct)
            each = places.reshape(len(group), -1)
            found |= {n: analysis.at(at) for n, at in zip(group, each, strict=True)}
        return [found[n] for n in range(len(program.parts))]

    def _one(self, part: SpacePart, settings: IntArray) -> Analysis:
        """The calculation for one part."""
        self.check()
        columns = counts(part, settings)
        plan = part.plan(settings)
        traffic = cache_traffic(
            plan,
            part.workload.tensors,
            self.machine.cache_bytes,
            all_cache_bytes=self.machine.all_cache_bytes,
            line_bytes=self.machine.line_bytes,
            streamed_bytes=columns["streamed_bytes"],
        )
        return combine(columns, traffic, self.machine)


def total(rows: npt.NDArray[np.floating[Any]]) -> npt.NDArray[Any]:
    """The sum of (R, P) over R, in order: the grouping of `ndarray.sum` depends on the shape, and a
    candidate's prediction must not depend on which others it is predicted with."""
    return reduce(np.add, rows)


def combine(columns: Counts, traffic: Traffic, machine: MachineRates) -> Analysis:
    """Seconds from structure and traffic, see the module's docstring."""
    used, share, imbalance = _parallelism(columns, machine)
    to_secs = 1.0 / (machine.clock_hz * share)
    pipes, loads, issue = _side_by_side(columns, machine)
    # What a first tile copies as it computes takes no time of its own.
    copied = columns["packed_bytes"] - columns["fused_packed_bytes"]
    parts = np.zeros((len(COMPONENTS), len(share)), np.float32)
    parts[:_SERVED] = pipes * to_secs, loads * to_secs, issue * to_secs
    # Misses of cache i are served by the level behind it: the level that sets their bandwidth.
    for i, by_access in enumerate(traffic.moved):
        behind = machine.levels[i + 1]
        rate_by_threads = np.asarray(machine.bandwidth[behind])
        row = COMPONENTS.index(behind)
        parts[row] = total(by_access) / (rate_by_threads[used - 1] / imbalance)
    packing = _packing(copied, columns["strided_packed_bytes"], machine)
    parts[_PACKING] = np.maximum(packing * to_secs, _copying(copied, traffic, machine, used))
    fixed = pipes * _slowdown(columns, machine) + _waits(columns, traffic, machine)
    parts[_FIXED] = fixed * to_secs + columns["regions"] * machine.region_secs
    together = parts[:_PACKING].astype(np.float64)
    slowest = np.maximum(together.max(axis=0), 1e-30)
    powers = total((together / slowest) ** OVERLAP_NORM)
    secs = slowest * powers ** (1.0 / OVERLAP_NORM) + parts[_PACKING] + parts[_FIXED]
    return Analysis(columns, parts, imbalance, secs)


def _side_by_side(
    columns: Counts, machine: MachineRates
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(P,) cycles of multiply-add pipes, of load ports and of issue slots, which overlap."""
    # Half of exp's instructions bring its argument into range and scale (a test counts them).
    math_ops = columns["math_calls"] * (2.0 * POLYNOMIAL_SLOTS)
    vector_ops = columns["vector_ops"] + columns["lost_ops"] + math_ops
    # Sums wait for themselves, and all else goes on meanwhile: of those that follow, too, as many
    # as are begun before one ends.
    a_sum = np.maximum(columns["code_ops"] * columns["inner_trips"], 1.0)
    chained = columns["chained_ops"] * FMA_LATENCY / np.maximum(OPS_IN_FLIGHT / a_sum, 1.0)
    pipes = np.maximum(vector_ops / machine.fma_pipes, chained)
    # Under tests that choose what is read, the load of that is not all there is to load.
    loads = columns["vector_loads"] * (1.0 + columns["masked_share"]) + columns["prefetches"]
    moved = columns["vector_loads"] + columns["prefetches"] + columns["vector_stores"]
    trips = columns["inner_trips"] * columns["inner_entries"]
    scalar_ops = columns["test_ops"] + OPS_PER_LOOP_TRIP * trips
    issue = (vector_ops + moved + scalar_ops) / ISSUE_WIDTH
    return pipes, loads * machine.vector_bytes / machine.bytes_per_cycle[0], issue


def _waits(columns: Counts, traffic: Traffic, machine: MachineRates) -> FloatArray:
    """(P,) cycles of stalls, which overlap with nothing."""
    rates = np.asarray(machine.bytes_per_cycle)
    # A late line comes from where the whole problem lives.
    home = np.maximum(_home(traffic.footprint, machine), 1)
    lines = columns["conflict_misses"] / rates[1] + columns["exposed_lines"] / rates[home]
    # Accumulators stay in registers from one of the inner loops to the next.
    sums = np.minimum(columns["inner_entries"] * columns["accumulators"], columns["vector_stores"])
    return np.asarray(
        lines * machine.line_bytes
        + sums * machine.vector_bytes / rates[1]
        # A lane that is stored or loaded alone takes a cycle.
        + columns["scalar_accesses"]
        + columns["inner_entries"] * CYCLES_PER_LOOP_ENTRY
    )


def _packing(copied: FloatArray, gathered: FloatArray, machine: MachineRates) -> FloatArray:
    """(P,) cycles of a core for private copies of so many bytes, which it reads and writes; the
    `gathered` part takes a cycle per element."""
    *_, last_cache, _ = machine.bytes_per_cycle
    return 2.0 * (copied - gathered) / last_cache + gathered / machine.element_bytes


def _slowdown(columns: Counts, machine: MachineRates) -> FloatArray:
    """(P,) the relative cost of spills. LLVM loads what steps share once, before all steps, whether
    or not registers can hold it."""
    needed = np.maximum(columns["live_registers"] - 1.0 + columns["kept_values"], 1.0)
    excess = np.maximum(needed - machine.vector_registers, 0.0)
    # A value that finds no register is stored, and loaded again.
    return np.asarray(2.0 * excess / needed)


def _copying(
    copied: FloatArray, traffic: Traffic, machine: MachineRates, used: IntArray
) -> FloatArray:
    """(P,) seconds of memory traffic of private copies: each byte is read from the level that holds
    the whole problem."""
    # Copies are a second set of the data: the whole needs room for both.
    home = _home(traffic.footprint + copied, machine)
    rates = np.asarray([machine.bandwidth[level] for level in machine.levels])
    return np.asarray(np.where(home > 0, copied / rates[home, used - 1], 0.0))


def _home(size: npt.NDArray[np.floating[Any]], machine: MachineRates) -> IntArray:
    """(P,) the number of the level that holds so many bytes."""
    spilled = [size > capacity for capacity in machine.all_cache_bytes]
    return np.asarray(np.sum(spilled, axis=0, dtype=np.int64))


def _parallelism(columns: Counts, machine: MachineRates) -> tuple[IntArray, FloatArray, FloatArray]:
    """(threads used, speedup over one, load imbalance >= 1), each (P,)."""
    tasks = np.maximum(columns["tasks"], 1.0)
    parallel = columns["regions"] > 0
    used = np.where(parallel, np.minimum(np.ceil(tasks), machine.threads), 1).astype(np.int64)
    rounds = np.ceil(tasks / used)
    imbalance = np.where(parallel, rounds * used / tasks, 1.0)
    return used, used / imbalance, imbalance
