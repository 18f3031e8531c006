"""The analytic prior: seconds of a candidate from what its loops do, with nothing measured.

A core is as slow as its most loaded part (multiply-add pipes, load ports, issue slots), and a bit
slower the busier the others are; memory traffic of every level overlaps with it partly. A p-norm,
between maximum and sum, expresses both.
Copies into packed panels, spills, loop entries and parallel regions come on top. Parts of a program
are computed one after the other, and so are their times.
Source: the execution-cache-memory model (Stengel et al., ICS 2015, doi:10.1145/2751205.2751240)
with a p-norm for its overlap rule; FMA latency bound as in Low et al., "Analytical modeling is
enough for high-performance BLIS" (TOMS 43(2), 2016, doi:10.1145/2925987).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from schedules.arrays import FloatArray, IntArray
from schedules.plan import Access
from schedules.sketches.program import distinct_rows
from schedules.space import Part, ScheduleSpace, Sketch
from schedules.workload.workload import Workload

from .counts.counting import counts
from .counts.table import Counts
from .footprint import Traffic, cache_traffic, past_caches
from .machine import FMA_PIPES, Machine, compute_dtype, machine_for
from .programs import Program

COMPONENTS = ("pipes", "loads", "issue", "L1", "L2", "L3", "memory", "packing", "fixed")
"""Where the predicted time goes; `L1` is what comes out of L1's misses, and so on."""

_IN_CORE = COMPONENTS.index("L1")
_LEVELS = slice(_IN_CORE, COMPONENTS.index("memory") + 1)
_PACKING, _FIXED = COMPONENTS.index("packing"), COMPONENTS.index("fixed")


@dataclass(frozen=True, slots=True)
class PriorConstants:
    """Numbers of the model that no target describes; cycles unless named otherwise.

    They are round figures of current x86-64 and AArch64 cores (Fog, "Instruction tables", 2024;
    LLVM's scheduling models), not fitted: the learned model takes up what they miss. One register
    too many already halves the speed (a 7 x 64 tile on 32 registers: 106, not 250 GFLOP/s).
    A math function that waits for its chain takes 1 to 3 cycles more than one that does not.
    Panels filled by blocks that are turned in registers take as long as if a share of them were
    gathered, and so do copies that test for padding. A copy that the first tile makes as it
    computes leaves 0.3 of its time (see `sketches/tile/first_tile.py`).
    """

    fma_latency: float = 4.0
    load_ports: float = 2.0
    store_ports: float = 1.0
    issue_width: float = 6.0
    ops_per_math_call: float = 12.0
    registers_for_halves: float = 14.0
    most_halves_ahead: float = 4.0
    math_wait_cycles: float = 3.0
    cycles_per_scalar_access: float = 1.0
    cycles_per_miss: float = 5.0
    spill_slowdown: float = 1.0
    spill_slowdown_per_share: float = 2.0
    held_slowdown_per_share: float = 2.0
    cycles_per_loop_entry: float = 12.0
    cycles_per_accumulator: float = 1.5
    full_registers_slowdown: float = 0.1
    ops_per_loop_trip: float = 2.0
    masked_slowdown: float = 2.0
    micro_op_cache_ops: float = 3000.0
    slow_fetch_factor: float = 1.5
    copied_bytes_per_cycle: float = 16.0
    gathered_bytes_per_cycle: float = 3.0
    turned_share_gathered: float = 1 / 8
    tested_share_gathered: float = 1 / 3
    passing_share_left: float = 0.3
    overlap_norm: float = 4.0
    call_secs: float = 1e-7


DEFAULT_CONSTANTS = PriorConstants()


@dataclass(frozen=True, slots=True)
class Analysis:
    """All the prior knows of P settings of one sketch.

    `secs` (P,) is the predicted time of a call; `components` (len(COMPONENTS), P) float32 are the
    parts in seconds, before overlap; `imbalance` (P,) is >= 1.
    """

    columns: Counts
    traffic: Traffic
    components: npt.NDArray[np.float32]
    imbalance: FloatArray
    secs: FloatArray

    def at(self, places: IntArray) -> Analysis:
        """That of the settings at `places` (Q,), in this order."""
        return Analysis(
            {name: column[places] for name, column in self.columns.items()},
            self.traffic.at(places),
            self.components[:, places],
            self.imbalance[places],
            self.secs[places],
        )


class Prior:
    """Predicts for the candidates of one space. Stateless after construction.

    `check` is called before each calculation: what it raises ends a search that asks for many.
    """

    def __init__(
        self,
        space: ScheduleSpace,
        constants: PriorConstants = DEFAULT_CONSTANTS,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.space = space
        self.constants = constants
        self.check = check
        self.machine = machine_for(space.target, compute_dtype(space.workload))
        self.programs = tuple(Program(sketch) for sketch in space.sketches)

    def analyse(self, sketch: int, settings: IntArray) -> Analysis:
        """The whole calculation for `settings` (P, J) of sketch number `sketch`."""
        program = self.programs[sketch]
        parts = program.sketch.parts
        if len(parts) == 1:
            return self._one(parts[0], settings)
        each: dict[int, Analysis] = {}
        for group, found, places in self._groups(program.sketch, settings):
            each |= {n: found.at(own) for n, own in zip(group, places, strict=True)}
        return self._in_turn(program, [each[n] for n in range(len(parts))])

    def _groups(
        self, rules: Sketch, settings: IntArray
    ) -> Iterator[tuple[tuple[int, ...], Analysis, IntArray]]:
        """For each group of parts alike: their numbers, the analysis of the distinct settings they
        have, and (parts, P) which of these each part has in each of `settings`."""
        own = rules.own_settings(settings)
        for group in rules.alike:
            distinct, places = distinct_rows(np.concatenate([own[n] for n in group]))
            found = self._one(rules.parts[group[0]], distinct)
            yield group, found, places.reshape(len(group), -1)

    def _in_turn(self, program: Program, each: Sequence[Analysis]) -> Analysis:
        """Parts of a program run one after the other, each with threads, traffic and tails of its
        own; `columns` and `traffic` are the program's."""
        secs = total(np.stack([part.secs for part in each]))
        shares = total(np.stack([part.secs * part.imbalance for part in each]))
        return Analysis(
            program.joined([part.columns for part in each]),
            each[program.heaviest].traffic,
            total(np.stack([part.components for part in each])),
            shares / secs,
            secs - self.constants.call_secs * (len(each) - 1),
        )

    def _one(self, part: Part, settings: IntArray) -> Analysis:
        """The calculation for one part."""
        self.check()
        columns = counts(part, settings)
        plan = part.plan(settings)
        traffic = cache_traffic(
            plan.trips,
            plan.loop_axes,
            plan.accesses,
            self.machine.cache_bytes,
            all_cache_bytes=self.machine.all_cache_bytes,
            line_bytes=self.machine.line_bytes,
            pitches=[row_pitches(access, part.workload) for access in plan.accesses],
            packed=np.broadcast_to(plan.dense, len(plan.trips)),
        )
        traffic = past_caches(traffic, plan.accesses, columns["streamed_bytes"])
        return combine(columns, traffic, self.machine, self.constants)

    def log2_secs(self, sketch: int, settings: IntArray) -> FloatArray:
        """(P,) log2 of the predicted seconds of a call."""
        rules = self.space.sketches[sketch]
        if len(rules.parts) == 1:
            return np.asarray(np.log2(self._one(rules.parts[0], settings).secs))
        each: dict[int, FloatArray] = {}
        for group, found, places in self._groups(rules, settings):
            each |= {n: found.secs[own] for n, own in zip(group, places, strict=True)}
        secs = total(np.stack([each[n] for n in range(len(rules.parts))]))
        return np.asarray(np.log2(secs - self.constants.call_secs * (len(each) - 1)))


def row_pitches(access: Access, workload: Workload) -> tuple[int, ...] | None:
    """Bytes between neighbours in each dimension of a dense tensor; None if it is not one of the
    workload's, or is accessed with other dimensions than it has."""
    tensor = workload.tensors.get(access.buffer)
    if tensor is None or len(tensor.shape) != len(access.strides):
        return None
    return tuple(
        prod(tensor.shape[dim + 1 :]) * access.element_bytes for dim in range(len(tensor.shape))
    )


def total(rows: npt.NDArray[np.floating[Any]]) -> npt.NDArray[Any]:
    """The sum of (R, P) over R, added in order: `ndarray.sum` groups terms by the shape, and a
    candidate's prediction must not depend on which others it is predicted with."""
    return reduce(np.add, rows)


def combine(
    columns: Counts,
    traffic: Traffic,
    machine: Machine,
    constants: PriorConstants = DEFAULT_CONSTANTS,
) -> Analysis:
    """Seconds from structure and traffic, see the module's docstring."""
    c = constants
    used, share, imbalance = _parallelism(columns, machine)
    iterations = columns["inner_trips"] * columns["inner_entries"]
    plain_ops = columns["vector_ops"] + columns["lost_ops"]
    vector_ops = plain_ops + columns["math_calls"] * c.ops_per_math_call
    chains = columns["accumulators"]
    rate = np.where(chains > 0, np.minimum(chains / c.fma_latency, FMA_PIPES), FMA_PIPES)
    # Math functions wait for no accumulator: they fill the pipes while sums wait for each other.
    busy = np.maximum(plain_ops / rate, vector_ops / FMA_PIPES)
    pipes = busy * (1.0 + c.masked_slowdown * columns["masked_share"])
    loads = np.maximum(
        columns["vector_loads"] / c.load_ports, columns["vector_stores"] / c.store_ports
    )
    issued = vector_ops + columns["vector_loads"] + columns["vector_stores"]
    issue = (issued + c.ops_per_loop_trip * iterations) / c.issue_width
    issue *= np.where(columns["code_ops"] > c.micro_op_cache_ops, c.slow_fetch_factor, 1.0)
    fixed = (
        columns["scalar_accesses"] * c.cycles_per_scalar_access
        + (columns["conflict_misses"] + columns["exposed_lines"]) * c.cycles_per_miss
        + pipes * _slowdown(columns, machine, c)
        + columns["math_calls"] * _math_wait(columns, iterations, machine, c)
        + columns["inner_entries"] * c.cycles_per_loop_entry
        # Accumulators stay in registers from one of the inner loops to the next.
        + np.minimum(columns["inner_entries"] * chains, columns["vector_stores"])
        * c.cycles_per_accumulator
    )
    copied = _copied_bytes(columns, c)
    gathered = (
        columns["strided_packed_bytes"]
        + columns["turned_packed_bytes"] * c.turned_share_gathered
        + columns["tested_packed_bytes"] * c.tested_share_gathered
    )
    whole = copied - gathered
    packing = whole / c.copied_bytes_per_cycle + gathered / c.gathered_bytes_per_cycle
    to_secs = 1.0 / (machine.clock_hz * share)
    overhead = columns["regions"] * machine.relied_on_region_secs + c.call_secs
    parts = np.zeros((len(COMPONENTS), len(share)), np.float32)
    parts[:_IN_CORE] = pipes * to_secs, loads * to_secs, issue * to_secs
    # Misses of cache i are served by the level behind it: the level that sets their bandwidth.
    for i, by_access in enumerate(traffic.moved):
        behind = machine.levels[i + 1]
        rate_by_threads = np.asarray(machine.bandwidth[behind])
        row = COMPONENTS.index(behind)
        parts[row] = total(by_access) / (rate_by_threads[used - 1] / imbalance)
    parts[_PACKING] = np.maximum(
        packing * to_secs, _copying(copied, columns, traffic, machine, used)
    )
    parts[_FIXED] = fixed * to_secs + overhead
    norm = c.overlap_norm
    in_core = parts[:_IN_CORE]
    core = in_core.max(axis=0).astype(np.float64)
    core *= total((in_core / np.maximum(core, 1e-30)) ** norm) ** (1.0 / norm)
    scale = np.maximum(core, 1e-30)
    powers = 1.0 + total((parts[_LEVELS] / scale) ** norm)
    secs = scale * powers ** (1.0 / norm) + parts[_PACKING] + parts[_FIXED]
    return Analysis(columns, traffic, parts, imbalance, secs)


def _slowdown(columns: Counts, machine: Machine, c: PriorConstants) -> FloatArray:
    """(P,) by how much of their time multiply-adds are slower where registers are too few."""
    live = np.maximum(columns["live_registers"], 1.0)
    spilled = np.maximum(live - machine.vector_registers, 0.0)
    slowdown = np.where(
        spilled > 0,
        c.spill_slowdown + c.spill_slowdown_per_share * spilled / live,
        # Not one register to spare: what the scheduler moves ahead is spilled now and then.
        c.full_registers_slowdown
        * np.clip(live - machine.vector_registers + 2.0, 0.0, 2.0) ** 2
        / 4.0,
    )
    # LLVM loads what steps share once, ahead of them all, whether or not there is room to keep it.
    needed = np.maximum(live - 1.0 + columns["held_values"], 1.0)
    excess = np.where(columns["held_values"] > 0, needed - machine.vector_registers, 0.0)
    found: FloatArray = slowdown + c.held_slowdown_per_share * np.maximum(excess, 0.0) / needed
    return found


def _math_wait(
    columns: Counts, iterations: FloatArray, machine: Machine, c: PriorConstants
) -> FloatArray:
    """(P,) cycles a math function waits for its own chain. Where registers are spare, the code
    generator writes the first half of each beside the one before, except for a body's first."""
    spare = machine.vector_registers - columns["live_registers"]
    chains = columns["accumulators"]  # as many copies of each statement, where there are sums
    each = np.where(chains > 0, chains, columns["math_calls"] / np.maximum(iterations, 1.0))
    each = np.clip(each, 1.0, c.most_halves_ahead)
    found: FloatArray = c.math_wait_cycles / np.where(spare >= c.registers_for_halves, each, 1.0)
    return found


def _copied_bytes(columns: Counts, c: PriorConstants) -> FloatArray:
    """(P,) bytes of private copies that take time of their own: what a first tile copies as it
    computes hardly does."""
    hidden = columns["passing_packed_bytes"] * (1.0 - c.passing_share_left)
    return np.asarray(columns["packed_bytes"] - hidden)


def _copying(
    copied: FloatArray, columns: Counts, traffic: Traffic, machine: Machine, used: IntArray
) -> FloatArray:
    """(P,) seconds that memory takes for private copies: each byte is read from where the whole
    problem lives, and fetched and written back wherever a panel is too large for a cache."""
    per_byte = np.zeros_like(copied)
    again = np.zeros_like(per_byte)
    for i, capacity in enumerate(machine.cache_bytes):
        # Copies are a second set of the data: the whole needs room for both.
        total_bytes = traffic.footprint[0] + copied
        spills = total_bytes > machine.all_cache_bytes[i]
        lost = spills & (columns["panel_bytes"] > capacity / 2) & (i > 0)
        rate = np.asarray(machine.bandwidth[machine.levels[i + 1]])[used - 1]
        per_byte = np.where(spills, 1.0 / rate, per_byte)
        again = again + np.where(lost, 2.0 / rate, 0.0)
    return np.asarray(copied * (per_byte + again))


def _parallelism(columns: Counts, machine: Machine) -> tuple[IntArray, FloatArray, FloatArray]:
    """(threads at work, how many times faster than one, imbalance >= 1), each (P,)."""
    tasks = np.maximum(columns["tasks"], 1.0)
    parallel = columns["regions"] > 0
    used = np.where(parallel, np.minimum(np.ceil(tasks), machine.threads), 1).astype(np.int64)
    rounds = np.ceil(tasks / used)
    imbalance = np.where(parallel, rounds * used / tasks, 1.0)
    return used, used / imbalance, imbalance
