"""Counts of nests, leaf by leaf: one way for all kinds of parts.

Leaves whose innermost loop is the same are one *body*: they share what they load, and the body that
does most of the work says what registers are needed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from schedules.arrays import BoolArray, FloatArray, IntArray
from schedules.leaves import Leaf, Loop, Number, Place
from schedules.sketches.analysis import MOST_STEP
from schedules.sketches.hardware import FMA_LATENCY

from .table import Counts, with_zeros
from .windows import read_by


def nest_counts(leaves: Sequence[Leaf], settings: int) -> Counts:
    """COUNTS of `leaves`, in the order of the program."""
    return _Nest(leaves, settings).counts()


class _Nest:
    """Counts of P settings, collected leaf by leaf. Arrays are (L, P) for L loops; loop 0 stands
    for what is in none."""

    def __init__(self, leaves: Sequence[Leaf], settings: int) -> None:
        self.leaves, self.every = leaves, np.arange(settings)
        self.loops: list[Loop | None] = [None]
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
                self.around[n] = outer = self.number[id(loop.around)]
                self.tasks[n] = loop.steps if loop.tasks is None else loop.tasks
                self.shared[n], self.turns[n] = loop.is_shared, loop.steps / loop.codes
                # Of several codes all but one have one iteration, and no loop.
                self.trips[n] = loop.steps - loop.codes + 1
                self.runs[n] = loop.steps * self.runs[outer]
                self.body[n] = np.where(self.trips[n] > 1, n, self.body[outer])
        self.work, self.code, self.sums, self.live, self.kept, self.chains = np.zeros((6, *shape))
        names = (
            "flops", "vector_ops", "math_calls", "vector_loads", "vector_stores",
            "scalar_accesses", "masked_share", "exposed_lines",
        )  # fmt: skip
        self.total = {name: np.zeros(settings) for name in names}
        self.known: dict[object, list[tuple[IntArray, BoolArray, tuple[Number, Number]]]] = {}

    def _add(self, loop: Loop | None) -> None:
        if loop is not None and not any(loop is one for one in self.loops):
            self._add(loop.around)
            self.loops.append(loop)

    def counts(self) -> Counts:
        """All of them."""
        for leaf in self.leaves:
            self._count(leaf)
        total = self.total
        total["masked_share"] /= np.maximum(total["vector_ops"], 1.0)
        heaviest = (np.argmax(self.work, axis=0), self.every)
        # Additions alone, and in their own loops alone, order rows better and propose slower ones.
        chains = self.chains[heaviest]
        tasks, regions = self._tasks()
        entries, trips = self._innermost()
        return with_zeros({
            **total,
            "chained_ops": np.where(chains > 0, total["vector_ops"] / np.maximum(chains, 1.0), 0.0),
            "code_ops": self.code[heaviest] / np.maximum(self.runs[heaviest], 1.0),
            "accumulators": chains,
            "live_registers": self.live[heaviest] + self.sums[heaviest],
            "kept_values": self.kept[heaviest],
            "inner_entries": entries,
            "inner_trips": trips,
            "tasks": tasks,
            "regions": regions,
        })  # fmt: skip

    def _count(self, leaf: Leaf) -> None:
        """Add what a leaf does to all counts."""
        n = self.number[id(leaf.loop)]
        body = self.body[n]
        at, does = (body, self.every), leaf.does
        iterations = self.runs[n] * leaf.times
        if not iterations.any():
            return
        ops = math = 0.0
        for some in does.operations:
            often = iterations * leaf.reach(some.axes) * leaf.filled * leaf.share(some.axes)
            lanes = leaf.lanes if leaf.along in some.axes else 1
            ops = ops + often * some.instructions
            math = math + often * some.math
            self.total["flops"] += often * lanes * some.flops
        self.total["vector_ops"] += ops
        self.total["math_calls"] += math
        self.total["exposed_lines"] += iterations * leaf.waits * FMA_LATENCY
        self.total["masked_share"] += ops * np.maximum(does.is_tested, leaf.tested)
        moved, values, waiting = self._loaded(leaf, body, iterations)
        if does.writes is not None:
            stores = iterations * leaf.all_copies * leaf.filled * leaf.share(leaf.copies)
            gathered = self._is_gathered(leaf, does.writes)
            self.total["scalar_accesses"] += stores * leaf.lanes * gathered
            self.total["vector_stores"] += stores * ~gathered
            moved = moved + stores
            self._know(does.writes, leaf, body, iterations)
        present = iterations > 0
        reduces = [loop is not None and bool(loop.axes & does.over) for loop in self.loops]
        in_loop, unrolled = np.asarray(reduces)[body], np.asarray(leaf.is_unrolled)
        self.work[at] += ops + math + moved
        self.code[at] += (ops + math + moved) / leaf.share(leaf.copies)
        self.sums[at] += present * leaf.sums
        needed = np.maximum(self.live[at], present * (values + leaf.registers))
        self.live[at] = needed
        chains = present * (in_loop | unrolled) * leaf.sums
        self.chains[at] = np.maximum(self.chains[at], chains)
        self.unrolled[at] |= present & unrolled & ~in_loop
        self.kept[at] = np.maximum(self.kept[at], present * waiting)

    def _loaded(
        self, leaf: Leaf, body: IntArray, iterations: FloatArray
    ) -> tuple[Number, Number, Number]:
        """Loads of a leaf, the registers that one step of it reads, and those that wait for later
        ones. What leaves of its body have loaded or stored is known; what the innermost loop does
        not change is loaded before it."""
        moved: Number = 0.0
        values: Number = 0
        waiting: Number = 0
        for place in leaf.does.reads:
            different, here, later = read_by(leaf, place)
            often = iterations * different * leaf.filled * leaf.share(place.steps)
            still = [loop is None or bool(loop.axes & place.steps.keys()) for loop in self.loops]
            changes = np.asarray(still)[body] | self.shared[body, self.every]
            often = often / np.where(changes, 1.0, self.turns[body, self.every]).clip(1.0)
            values, waiting = values + here, waiting + later
            for other, present, shape in self.known.get((place.key, leaf.piece), ()):
                alike = (other == body) & present
                for one, two in zip(shape, self._shape(leaf, place), strict=True):
                    alike &= np.asarray(one == two)
                often = np.where(alike, 0.0, often)
            self._know(place, leaf, body, iterations)
            gathered = self._is_gathered(leaf, place)
            step = abs(place.steps.get(leaf.along, 0))
            loads = often * max(step if step <= MOST_STEP else 1, 1) * ~gathered
            self.total["scalar_accesses"] += often * leaf.lanes * gathered
            self.total["vector_loads"] += loads
            moved = moved + loads
        return moved, values, waiting

    def _know(self, place: Place, leaf: Leaf, body: IntArray, iterations: FloatArray) -> None:
        known = self.known.setdefault((place.key, leaf.piece), [])
        known.append((body, iterations > 0, self._shape(leaf, place)))

    def _shape(self, leaf: Leaf, place: Place) -> tuple[Number, Number]:
        """Lanes and copies of what is loaded or stored: one element is the same for all."""
        return leaf.lanes if leaf.along in place.steps else 1, leaf.reach(place.steps)

    def _is_gathered(self, leaf: Leaf, place: Place) -> BoolArray:
        """Whether lanes go element by element."""
        is_far = abs(place.steps.get(leaf.along, 0)) > MOST_STEP
        return is_far & (np.asarray(leaf.lanes) > 1)

    def _innermost(self) -> tuple[FloatArray, FloatArray]:
        """How often loops with no other in them are entered, and their iterations an entry."""
        runs, entries = np.zeros(len(self.every)), np.zeros(len(self.every))
        outside = np.zeros(self.trips.shape, np.bool_)  # has a loop in it
        for n in range(len(self.loops) - 1, 0, -1):
            is_loop = (self.trips[n] > 1) & (self.runs[n] > 0)
            inner = is_loop & ~outside[n]
            runs += inner * self.runs[n]
            # A reduction that is written out is a loop of one iteration.
            trips = np.where(self.unrolled[n], 1.0, self.trips[n])
            entries += inner * self.runs[n] / np.maximum(trips, 1.0)
            outside[self.around[n]] |= is_loop | outside[n]
        return np.maximum(entries, 1.0), np.where(entries > 0, runs / np.maximum(entries, 1.0), 1.0)

    def _tasks(self) -> tuple[FloatArray, FloatArray]:
        """Iterations of the heaviest loop that threads share, and how often such are entered."""
        weight = self.work.copy()
        for n in range(len(self.loops) - 1, 0, -1):
            weight[self.around[n]] += weight[n]
        is_region = self.shared & (self.trips > 1)
        regions = np.zeros(len(self.every))
        for n in range(1, len(self.loops)):
            regions += is_region[n] * self.runs[self.around[n]]
        chosen = (np.argmax(np.where(is_region, weight + 1.0, 0.0), axis=0), self.every)
        return np.where(regions > 0, self.tasks[chosen], 1.0), regions
