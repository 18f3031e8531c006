"""Programs of several parts: what is counted of one, from what is counted of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from schedules.arrays import IntArray
from schedules.space import Sketch

from .counts.counting import counts
from .counts.table import Counts

ADDED = (
    "flops", "vector_ops", "vector_loads", "vector_stores", "scalar_accesses", "math_calls",
    "conflict_misses", "exposed_lines", "lost_ops", "packed_bytes", "strided_packed_bytes",
    "turned_packed_bytes", "passing_packed_bytes", "tested_packed_bytes", "regions",
)  # fmt: skip
"""Counts that add up over parts."""


@dataclass(frozen=True)
class Program:
    """The parts of `sketch`, seen as one."""

    sketch: Sketch

    @cached_property
    def heaviest(self) -> int:
        """The part whose loops stand for the program's."""
        costs = [
            float(counts(part, np.asarray([part.default()]))["flops"][0])
            for part in self.sketch.parts
        ]
        return int(np.argmax(costs))

    def counts(self, settings: IntArray) -> Counts:
        """COUNTS of (P, J) `settings`, see `joined`."""
        own = self.sketch.own_settings(settings)
        return self.joined([counts(p, s) for p, s in zip(self.sketch.parts, own, strict=True)])

    def joined(self, each: Sequence[Counts]) -> Counts:
        """Counts of the program from those of its parts: some add up; what describes the innermost
        loop is the heaviest part's."""
        total = dict(each[self.heaviest])
        for name in ADDED:
            total[name] = np.sum([found[name] for found in each], axis=0)
        return total
