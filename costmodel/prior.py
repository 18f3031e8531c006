"""The analytic prior: run time of a candidate computed from its loop nest, without any measurement.

The time of a core is determined by its most loaded resource (multiply-add pipes, load ports, issue
slots, traffic of each memory level) and grows slightly with the load of the others. A p-norm, which
lies between maximum and sum, models this. Packing copies, spills, loop entries and parallel regions
are added to it. The parts of a program run one after the other, so their times are summed. Source:
the execution-cache-memory model (Stengel et al., ICS 2015, doi:10.1145/2751205.2751240) with a
p-norm for its overlap rule; FMA latency bound as in Low et al., "Analytical modeling is enough for
high-performance BLIS" (TOMS 43(2), 2016, doi:10.1145/2925987).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.schedules.algebra.scalar_function import FUNCTION_OPS
from tilewright.schedules.arrays import FloatArray, IntArray, distinct_rows
from tilewright.schedules.hardware import FMA_LATENCY, OPS_IN_FLIGHT
from tilewright.schedules.space import Candidate, ScheduleSpace, SpacePart

from .analysis import Analysis
from .counts.counting import counts, joined
from .counts.table import Counts
from .footprint import Traffic, cache_traffic
from .machine import MachineRates, compute_dtype, level_behind_second_cache, machine_for
from .part_tables import PartTables

COMPONENTS = ("pipes", "loads", "issue", "L2", "L3", "memory", "packing", "fixed")
"""Components of the predicted time. `L2`, `L3` and `memory` are the times to serve requests from
these levels. All components before `packing` overlap."""

_SERVED, _PACKING, _FIXED = map(COMPONENTS.index, ("L2", "packing", "fixed"))

ISSUE_WIDTH = 6.0
"""Instructions issued per cycle. Published: LLVM's models of Zen 3 and 4 and of Sapphire Rapids;
other cores issue four to eight."""

OPS_PER_LOOP_TRIP = 2.0
"""Instructions of loop control per iteration. Published: an addition, and a comparison fused with
its branch (Fog)."""

CYCLES_PER_LOOP_ENTRY = 13.0
"""Cycles of the mispredicted branch that leaves a loop. Published: the common case of AMD's family
19h (its optimisation guide); 11 to 20 on other cores (Fog)."""

OVERLAP_NORM = 4.0
"""Exponent of the p-norm over overlapping components; infinity would give the slowest component, 1
the sum. Source: measured, `benchmarks/published/constants.txt`. Exponents 2, 3 and 6, and the mean
of the other components instead of the norm, rank equally well or worse and propose slower dilated
windows."""

CHAIN_NORM = 8.0
"""Exponent of the p-norm over the multiply-adds of a tile and the latency of its sums. A tile with
just enough sums to hide the latency (8 on two pipes) stalls whenever one multiply-add is late. On a
Zen 3, such tiles reach 0.93 of the speed of tiles with 12 sums, and 0.84 while another thread uses
the core. Source: measured, `benchmarks.prior judge`: an exponent of 4 ranks
the settings of the Zen 5 worse, infinity those with AVX2."""

Corrects: TypeAlias = Callable[[Analysis], FloatArray]
"""Returns a correction in log2 seconds for each analysed setting, shape (P,)."""


class Prior:
    """Predicts run times of the candidates of one space. Analyses of parts with few settings are
    kept in `tables`, which change no prediction.

    `check` is called before each calculation. It may raise an exception to stop a search that runs
    many calculations. `correction`, if any, is added to each prediction (`correction.Correction`).
    """

    def __init__(
        self,
        space: ScheduleSpace,
        check: Callable[[], None] = lambda: None,
        correction: Corrects | None = None,
        tables: PartTables | None = None,
    ) -> None:
        self.space = space
        self.tables = PartTables() if tables is None else tables
        self.check = check
        self.correction = correction
        self.machine = machine_for(space.target, compute_dtype(space.workload))

    def analyse(self, sketch: int, settings: IntArray) -> Analysis:
        """Return the analysis of `settings` (P, J) of sketch number `sketch`. The parts of a
        program run one after the other; each part has separate threads, traffic and remainders."""
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
        """Return log2 of the predicted seconds of a call, shape (P,)."""
        if self.correction is not None:
            return self.log2_of(self.analyse(sketch, settings))
        secs = total(np.stack([part.secs for part in self._each(sketch, settings)]))
        return np.asarray(np.log2(secs))

    def log2_secs_of(self, candidates: Iterable[Candidate]) -> dict[Candidate, float]:
        """Return log2 of the predicted seconds of a call of each candidate."""
        by_sketch: dict[int, list[Candidate]] = {}
        for candidate in dict.fromkeys(candidates):
            by_sketch.setdefault(candidate.sketch, []).append(candidate)
        found: dict[Candidate, float] = {}
        for sketch, own in by_sketch.items():
            settings = np.array([candidate.setting for candidate in own], np.int64)
            found |= zip(own, self.log2_secs(sketch, settings).tolist(), strict=True)
        return found

    def log2_of(self, analysis: Analysis) -> FloatArray:
        """Return log2 of the predicted seconds of analysed settings, shape (P,)."""
        plain = np.asarray(np.log2(analysis.secs))
        return plain if self.correction is None else plain + self.correction(analysis)

    def for_space(self, space: ScheduleSpace) -> Prior:
        """Return a prior for another space on the same target, with the same `check`, `correction`
        and `tables`, which hold for the same machine only."""
        return Prior(space, self.check, self.correction, self.tables)

    def _each(self, sketch: int, settings: IntArray) -> list[Analysis]:
        """Return the analysis of each part. Parts of the same structure are analysed together, and
        only for distinct settings."""
        program = self.space.sketches[sketch]
        if len(program.parts) == 1:
            return [self.tables.find(program.parts[0], settings, self._one)]
        own, found = program.split_settings(settings), dict[int, Analysis]()
        for group in program.equivalence_classes:
            distinct, places = distinct_rows(np.concatenate([own[n] for n in group]))
            analysis = self.tables.find(program.parts[group[0]], distinct, self._one)
            each = places.reshape(len(group), -1)
            found |= {n: analysis.at(at) for n, at in zip(group, each, strict=True)}
        return [found[n] for n in range(len(program.parts))]

    def _one(self, part: SpacePart, settings: IntArray) -> Analysis:
        """Return the analysis of one part. Equal settings are analysed once."""
        self.check()
        distinct, places = distinct_rows(settings)
        if len(distinct) < len(settings):
            return self._one(part, distinct).at(places)
        columns = counts(part, settings)
        plan = part.plan(settings)
        traffic = cache_traffic(
            plan,
            part.workload.tensors,
            self.machine.cache_bytes,
            all_cache_bytes=self.machine.all_cache_bytes,
            line_bytes=self.machine.line_bytes,
            streamed_bytes=columns["streamed_bytes"],
            threads=self.machine.threads,
        )
        return combine(columns, traffic, self.machine)


def total(rows: npt.NDArray[np.floating[Any]]) -> npt.NDArray[Any]:
    """Return the sum of `rows` (R, P) over R, added in order. `ndarray.sum` groups terms depending
    on the shape, and a candidate's prediction must not depend on the other candidates in its
    batch."""
    return reduce(np.add, rows)


def combine(columns: Counts, traffic: Traffic, machine: MachineRates) -> Analysis:
    """Return the predicted times from counts and traffic; the module docstring describes the
    model."""
    used, share, imbalance = _parallelism(columns, machine)
    to_secs = 1.0 / (machine.clock_hz * share)
    pipes, loads, issue = _side_by_side(columns, machine)
    # Copies that the first tile makes while it computes take no extra time.
    copied = columns["packed_bytes"] - columns["fused_packed_bytes"]
    parts = np.zeros((len(COMPONENTS), len(share)), np.float32)
    parts[:_SERVED] = pipes * to_secs, loads * to_secs, issue * to_secs
    # Misses of cache i are served by the level behind it: the level that sets their bandwidth.
    for i, by_access in enumerate(traffic.moved):
        behind = machine.levels[i + 1]
        rate_by_threads = np.asarray(machine.bandwidth[behind])
        row = COMPONENTS.index(behind)
        parts[row] = total(by_access) / (rate_by_threads[used - 1] / imbalance)
    parts[_SERVED:_PACKING] += _prefetching(columns, traffic, machine) * to_secs
    # Lines that a stride evicted from L2 are loaded from L3 again, while the arithmetic goes on.
    near = columns["conflict_misses"] * machine.line_bytes / machine.bytes_per_cycle[1]
    parts[_SERVED] += near * to_secs
    evicted = columns["far_conflict_misses"] * machine.far_conflict_cycles
    parts[COMPONENTS.index(level_behind_second_cache(machine.levels))] += evicted * to_secs
    packing = _packing(copied, columns["strided_packed_bytes"], machine)
    read = copied - columns["collected_bytes"]
    parts[_PACKING] = np.maximum(packing * to_secs, _copying(read, traffic, machine, used))
    fixed = pipes * _slowdown(columns, machine) + _waits(columns, traffic, machine)
    parts[_FIXED] = fixed * to_secs + columns["regions"] * machine.region_secs
    together = parts[:_PACKING].astype(np.float64)
    secs = _overlapped(together, OVERLAP_NORM) + parts[_PACKING] + parts[_FIXED]
    return Analysis(columns, parts, imbalance, secs)


def _overlapped(times: FloatArray, norm: float) -> FloatArray:
    """Return the p-norm with exponent `norm` of overlapping times (R, P), shape (P,)."""
    slowest = np.maximum(times.max(axis=0), 1e-30)
    powers = total((times / slowest) ** norm)
    found: FloatArray = slowest * powers ** (1.0 / norm)
    return found


def _side_by_side(
    columns: Counts, machine: MachineRates
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the cycles of the multiply-add pipes, of the load ports and of instruction issue, each
    (P,). The three overlap."""
    math_ops = columns["math_calls"] * float(FUNCTION_OPS)
    vector_ops = columns["vector_ops"] + columns["lost_ops"] + math_ops
    # A sum is a chain of dependent additions. Other instructions execute meanwhile, including those
    # of as many following sums as fit into the instructions in flight.
    ops_per_sum = np.maximum(columns["code_ops"] * columns["inner_trips"], 1.0)
    chained = columns["chained_ops"] * FMA_LATENCY / np.maximum(OPS_IN_FLIGHT / ops_per_sum, 1.0)
    pipes = _overlapped(np.stack([vector_ops / machine.fma_pipes, chained]), CHAIN_NORM)
    # Code under tests that select the elements to read loads more than these elements.
    fetches = columns["prefetches"] + columns["near_prefetches"]
    loads = columns["vector_loads"] * (1.0 + columns["masked_share"]) + fetches
    moved = columns["vector_loads"] + fetches + columns["vector_stores"]
    trips = columns["inner_trips"] * columns["inner_entries"]
    scalar_ops = columns["test_ops"] + OPS_PER_LOOP_TRIP * trips
    issue = (vector_ops + moved + scalar_ops) / ISSUE_WIDTH
    return pipes, loads * machine.vector_bytes / machine.bytes_per_cycle[0], issue


def _waits(columns: Counts, traffic: Traffic, machine: MachineRates) -> FloatArray:
    """Return the cycles of stalls that nothing overlaps, shape (P,)."""
    rates = np.asarray(machine.bytes_per_cycle)
    # An exposed line is loaded from the level that holds the whole problem.
    home = np.maximum(_home(traffic.footprint, machine), 1)
    exposed = columns["exposed_lines"] * np.asarray(machine.exposed_cycles)[home]
    # Accumulators stay in registers across consecutive inner loops.
    sums = np.minimum(columns["inner_entries"] * columns["accumulators"], columns["vector_stores"])
    return np.asarray(
        exposed
        + columns["contended_lines"] * machine.line_bytes / rates[home]
        + columns["latency_cycles"]
        + sums * machine.vector_bytes / rates[1]
        # A lane that is loaded or stored separately takes a cycle.
        + columns["scalar_accesses"]
        + columns["inner_entries"] * CYCLES_PER_LOOP_ENTRY
    )


def _prefetching(columns: Counts, traffic: Traffic, machine: MachineRates) -> FloatArray:
    """Return the cycles by which software prefetches from other pages are slower than a stream, by
    level, shape (3, P).

    They need the same miss buffers as loads, so they are not faster than strided loads.
    """
    home = np.maximum(_home(traffic.footprint, machine), 1)
    late = columns["prefetches"] * np.asarray(machine.late_cycles)[home]
    rows = [COMPONENTS.index(level) - _SERVED for level in machine.levels[1:]]
    found = np.zeros((_PACKING - _SERVED, len(home)))
    for row, level in zip(rows, range(1, len(machine.levels)), strict=True):
        found[row] = np.where(home == level, late, 0.0)
    return found


def _packing(copied: FloatArray, gathered: FloatArray, machine: MachineRates) -> FloatArray:
    """Return the cycles that a core takes to read and write `copied` bytes of private copies, shape
    (P,). The `gathered` bytes among them take one cycle per element."""
    *_, last_cache, _ = machine.bytes_per_cycle
    return 2.0 * (copied - gathered) / last_cache + gathered / machine.element_bytes


def _slowdown(columns: Counts, machine: MachineRates) -> FloatArray:
    """Return the relative slowdown of multiply-adds by register spills, shape (P,). LLVM hoists
    loads shared by several steps above all these steps even if no register is free to hold them."""
    needed = np.maximum(columns["live_registers"] - 1.0 + columns["kept_values"], 1.0)
    excess = np.maximum(needed - machine.vector_registers, 0.0)
    # A spilled value is stored and loaded again.
    return np.asarray(2.0 * excess / needed)


def _copying(
    copied: FloatArray, traffic: Traffic, machine: MachineRates, used: IntArray
) -> FloatArray:
    """Return the seconds that memory takes for private copies, shape (P,). Each byte is read from
    the level that holds the whole problem."""
    # Originals and copies occupy memory together.
    home = _home(traffic.footprint + copied, machine)
    rates = np.asarray([machine.bandwidth[level] for level in machine.levels])
    return np.asarray(np.where(home > 0, copied / rates[home, used - 1], 0.0))


def _home(size: npt.NDArray[np.floating[Any]], machine: MachineRates) -> IntArray:
    """Return the number of the innermost memory level that holds `size` bytes, shape (P,)."""
    spilled = [size > capacity for capacity in machine.all_cache_bytes]
    return np.asarray(np.sum(spilled, axis=0, dtype=np.int64))


def _parallelism(columns: Counts, machine: MachineRates) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the number of threads used, the speedup over one thread, and the load imbalance (>=
    1), each (P,)."""
    tasks = np.maximum(columns["tasks"], 1.0)
    parallel = columns["regions"] > 0
    used = np.where(parallel, np.minimum(np.ceil(tasks), machine.threads), 1).astype(np.int64)
    rounds = np.ceil(tasks / used)
    imbalance = np.where(parallel, rounds * used / tasks, 1.0)
    return used, used / imbalance, imbalance
