"""Counts of loop nests, accumulated over their leaves. All kinds of parts use this implementation.

Leaves with the same innermost loop form one *body*. They use the same loaded vectors. The body with
the most work determines the register counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.schedules.arrays import BoolArray, FloatArray, IntArray, Number
from tilewright.schedules.hardware import FMA_LATENCY
from tilewright.schedules.leaves import MAX_LANE_STRIDE, AccessPattern, Leaf, LeafLoop

from .bodies import Uses, alive
from .table import Counts, with_zeros
from .windows import read_by


def nest_counts(leaves: Sequence[Leaf], settings: int) -> Counts:
    """Return the COUNTS of `leaves`, which are in program order."""
    return _Nest(leaves, settings).counts()


@dataclass(frozen=True, eq=False)
class _Part:
    """Leaf `number` in the settings that contain it."""

    number: int
    body: IntArray
    """The number of the loop body of the leaf, shape (P,). It is -1 if the setting does not contain
    the leaf."""
    lasts: BoolArray
    """Whether the leaf's accumulators stay live across iterations of the loop, shape (P,)."""
    values: Number
    """The number of vectors that the leaf reads in one step."""


class _Nest:
    """The counts of P settings, accumulated leaf by leaf. Arrays have shape (L, P) for L loops.
    Loop 0 represents the code outside all loops."""

    def __init__(self, leaves: Sequence[Leaf], settings: int) -> None:
        self.leaves, self.every = leaves, np.arange(settings)
        self.loops: list[LeafLoop | None] = [None]
        for leaf in leaves:
            self._add(leaf.loop)
        self.number = {id(loop): n for n, loop in enumerate(self.loops)}
        shape = (len(self.loops), settings)
        self.trips, self.turns, self.tasks, self.runs = np.ones((4, *shape))
        self.body = np.zeros(shape, np.int64)
        self.shared, self.unrolled = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)
        self.around = [0] * len(self.loops)
        for n, loop in enumerate(self.loops):
            if loop is not None:
                self.around[n] = outer = self.number[id(loop.parent)]
                self.tasks[n] = loop.trip_count if loop.tasks is None else loop.tasks
                self.shared[n], self.turns[n] = (
                    loop.is_parallel,
                    loop.trip_count / loop.num_versions,
                )
                # All versions of the loop except one have a single iteration, so they are no loops.
                self.trips[n] = loop.trip_count - loop.num_versions + 1
                self.runs[n] = loop.trip_count * self.runs[outer]
                self.body[n] = np.where(self.trips[n] > 1, n, self.body[outer])
        self.work, self.code, self.kept, self.chains, self.has_leaf = np.zeros((5, *shape))
        self.chained = np.zeros(shape)
        names = (
            "flops", "vector_ops", "math_calls", "vector_loads", "vector_stores",
            "scalar_accesses", "masked_share", "latency_cycles",
        )  # fmt: skip
        self.total = {name: np.zeros(settings) for name in names}
        self.uses = Uses()
        self.parts: list[_Part] = []

    def _add(self, loop: LeafLoop | None) -> None:
        if loop is not None and not any(loop is one for one in self.loops):
            self._add(loop.parent)
            self.loops.append(loop)

    def counts(self) -> Counts:
        """Return all counts."""
        for number, leaf in enumerate(self.leaves):
            self._count(number, leaf)
        total = self.total
        total["masked_share"] /= np.maximum(total["vector_ops"], 1.0)
        heaviest = (np.argmax(self.work, axis=0), self.every)
        chains = self.chains[heaviest]
        tasks, regions = self._tasks()
        entries, trips = self._innermost()
        return with_zeros({
            **total,
            "chained_ops": self.chained.sum(axis=0),
            "code_ops": self.code[heaviest] / np.maximum(self.runs[heaviest], 1.0),
            "accumulators": chains,
            "live_registers": self._live(heaviest[0]),
            "kept_values": self.kept[heaviest],
            "inner_entries": entries,
            "inner_trips": trips,
            "tasks": tasks,
            "regions": regions,
        })  # fmt: skip

    def _count(self, number: int, leaf: Leaf) -> None:
        """Add the counts of leaf `leaf`."""
        n = self.number[id(leaf.loop)]
        body = self.body[n]
        at, does = (body, self.every), leaf.statement
        iterations = self.runs[n] * leaf.frequency
        if not iterations.any():
            return
        present = iterations > 0
        ops = math = 0.0
        for some in does.operations:
            often = (
                iterations
                * leaf.copies_along(some.axes)
                * leaf.active_fraction
                * leaf.fraction_along(some.axes)
            )
            lanes = leaf.lanes if leaf.vector_axis in some.axes else 1
            ops = ops + often * some.instructions
            math = math + often * some.math_calls
            self.total["flops"] += often * lanes * some.flops
        self.total["vector_ops"] += ops
        self.total["math_calls"] += math
        self.total["latency_cycles"] += iterations * leaf.latency_chain * FMA_LATENCY
        self.total["masked_share"] += ops * np.maximum(does.is_guarded, leaf.guarded_fraction)
        moved, values, waiting = self._loaded(number, leaf, body, iterations)
        if does.writes is not None:
            stores = (
                iterations
                * leaf.all_copies
                * leaf.active_fraction
                * leaf.fraction_along(leaf.copies)
            )
            self.total["vector_stores"] += self._whole(leaf, does.writes, stores)
            moved = moved + stores
            self._share(number, does.writes, body, present, is_read=False)
        reduces = [
            loop is not None and bool(loop.axes & does.reduction_axes) for loop in self.loops
        ]
        in_loop, unrolled = np.asarray(reduces)[body], np.asarray(leaf.unrolls_reduction)
        self.work[at] += ops + math + moved
        self.code[at] += (ops + math + moved) / leaf.fraction_along(leaf.copies)
        self.has_leaf[n] += present
        lasts = in_loop & ~unrolled
        self.parts.append(_Part(number, np.where(present, body, -1), lasts, values))
        chains = present * (in_loop | unrolled) * leaf.accumulators
        self.chains[at] = np.maximum(self.chains[at], chains)
        # Sums of one loop body are independent of each other, so the longest chain decides.
        points = iterations * leaf.all_copies * leaf.fraction_along(leaf.copies)
        chained = np.where(chains > 0, points / np.maximum(chains, 1.0), 0.0)
        self.chained[at] = np.maximum(self.chained[at], chained)
        self.unrolled[at] |= present & unrolled & ~in_loop
        self.kept[at] = np.maximum(self.kept[at], present * waiting)

    def _loaded(
        self, number: int, leaf: Leaf, body: IntArray, iterations: FloatArray
    ) -> tuple[Number, Number, Number]:
        """Return three numbers for a leaf: loads, registers in one step, registers live for later
        steps.

        Vectors that other leaves of its body have loaded or stored are not loaded again.
        Loop-invariant vectors are loaded before the innermost loop, unless the leaf writes the
        tensor.
        """
        moved: Number = 0.0
        values: Number = 0
        waiting: Number = 0
        written = leaf.statement.writes and leaf.statement.writes.tensor
        for place in leaf.statement.reads:
            different, here, later = read_by(leaf, place)
            often = iterations * different * leaf.active_fraction * leaf.fraction_along(place.steps)
            still = [loop is None or bool(loop.axes & place.steps.keys()) for loop in self.loops]
            changes = np.asarray(still)[body] | self.shared[body, self.every]
            changes |= place.tensor == written
            turns = np.maximum(self.turns[body, self.every], 1.0)
            often = often / np.where(changes, 1.0, turns)
            values, waiting = values + here, waiting + later
            often = often * self._share(number, place, body, iterations > 0, is_read=True)
            step = abs(place.steps.get(leaf.vector_axis, 0))
            # number of loaded vectors from which the lanes are selected
            vectors = max(step, 1) if step <= MAX_LANE_STRIDE else 1
            loads = self._whole(leaf, place, often) * vectors
            self.total["vector_loads"] += loads
            moved = moved + loads
        return moved, values, waiting

    def _share(
        self,
        number: int,
        place: AccessPattern,
        body: IntArray,
        present: BoolArray,
        *,
        is_read: bool,
    ) -> FloatArray:
        """Return the fraction of the vectors that a leaf accesses which are new in its body, shape
        (P,)."""
        leaf, start = self.leaves[number], self._start(number)
        return self.uses.add(number, leaf, place, start, body, present, is_read=is_read)

    def _start(self, number: int) -> Number:
        """Return the number of the leaf's first vector. A remainder leaf starts after the full
        vectors of the preceding leaf."""
        leaf = self.leaves[number]
        if not leaf.is_remainder:
            return 0
        before = reversed(self.leaves[:number])
        whole = next(
            x
            for x in before
            if x.vector_axis == leaf.vector_axis
            and not x.is_remainder
            and x.pipeline_stage == leaf.pipeline_stage
        )
        return np.asarray(whole.loop.trip_count) * whole.copies.get(leaf.vector_axis, 1)

    def _live(self, heaviest: IntArray) -> FloatArray:
        """Return the number of registers that the heaviest body needs concurrently, shape (P,).

        They are the vectors that it reads, accumulators of sums that start and end in it, extra
        registers of a leaf, and all accumulators that are live across iterations of its loop.
        """
        there = {part.number: part.body == heaviest for part in self.parts}
        # by statement, because its leaves have common accumulators
        lasting: dict[int, FloatArray] = {}
        turns: dict[tuple[object, ...], list[_Part]] = {}
        for part in self.parts:
            leaf = self.leaves[part.number]
            sums = there[part.number] * part.lasts * np.asarray(leaf.accumulators)
            lasting[id(leaf.statement)] = np.maximum(sums, lasting.get(id(leaf.statement), 0.0))
            alone = part.number if np.any(leaf.extra_registers) else -1
            turns.setdefault((id(leaf.loop), leaf.vector_axis, alone), []).append(part)
        most = np.zeros(len(self.every))
        has_several = np.sum(list(there.values()), axis=0) > 1
        read = self.uses.read_in(heaviest) if has_several.any() else []
        for turn in turns.values():
            numbers = [part.number for part in turn]
            begun = sum(
                there[x.number] * ~x.lasts * self.leaves[x.number].accumulators for x in turn
            )
            for part in turn:
                here = there[part.number]
                if not here.any():
                    continue
                values = part.values
                if (here & has_several).any():
                    values = np.maximum(values, alive(read, part.number, numbers))
                needed = values + begun + self.leaves[part.number].extra_registers
                most = np.maximum(most, here * needed)
        return np.asarray(most + sum(lasting.values()))

    def _whole(self, leaf: Leaf, place: AccessPattern, accesses: FloatArray) -> FloatArray:
        """Return the part of `accesses` that access whole vectors.

        Lanes that are more than `MAX_LANE_STRIDE` elements apart are accessed one by one, and are
        counted as scalar accesses.
        """
        if abs(place.steps.get(leaf.vector_axis, 0)) <= MAX_LANE_STRIDE:
            return accesses
        gathered = np.asarray(leaf.lanes) > 1
        self.total["scalar_accesses"] += accesses * leaf.lanes * gathered
        return accesses * ~gathered

    def _innermost(self) -> tuple[FloatArray, FloatArray]:
        """Return the number of entries into innermost loops and the average trip count per entry,
        each of shape (P,)."""
        runs, entries = np.zeros(len(self.every)), np.zeros(len(self.every))
        outside = np.zeros(self.trips.shape, np.bool_)  # contains a loop
        several = self.trips > 1
        # An unrolled reduction counts as a loop of one iteration.
        starts = self.runs / np.where(self.unrolled, 1.0, np.maximum(self.trips, 1.0))
        for n in range(len(self.loops) - 1, 0, -1):
            is_loop = several[n] & (self.has_leaf[n] > 0)
            self.has_leaf[self.around[n]] += self.has_leaf[n]
            inner = is_loop & ~outside[n]
            runs += inner * self.runs[n]
            entries += inner * starts[n]
            outside[self.around[n]] |= is_loop | outside[n]
        return np.maximum(entries, 1.0), np.where(entries > 0, runs / np.maximum(entries, 1.0), 1.0)

    def _tasks(self) -> tuple[FloatArray, FloatArray]:
        """Return (1) the trip count of the parallel loop with the most work, and (2) the number of
        entries into parallel regions. Each has shape (P,)."""
        weight = self.work.copy()
        for n in range(len(self.loops) - 1, 0, -1):
            weight[self.around[n]] += weight[n]
        is_region = self.shared & (self.trips > 1)
        regions = np.zeros(len(self.every))
        for n in range(1, len(self.loops)):
            regions += is_region[n] * self.runs[self.around[n]]
        chosen = (np.argmax(np.where(is_region, weight + 1.0, 0.0), axis=0), self.every)
        return np.where(regions > 0, self.tasks[chosen], 1.0), regions
