"""Programs of several parts: what is counted of one, from what is counted of its parts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.schedules.arrays import IntArray
from tilewright.schedules.space import Sketch

from .counts.counting import counts
from .counts.table import TOTALS, Counts


def program_counts(sketch: Sketch, settings: IntArray) -> Counts:
    """COUNTS of (P, J) `settings` of a whole sketch."""
    own = sketch.split_settings(settings)
    return joined([counts(part, each) for part, each in zip(sketch.parts, own, strict=True)])


def joined(parts: Sequence[Counts]) -> Counts:
    """Counts of a program from those of its parts: some add up; what describes the innermost loop
    is that of the part with the most operations."""
    heaviest = np.argmax([part["flops"] for part in parts], axis=0)
    every = np.arange(len(heaviest))
    each = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    return {
        name: rows.sum(axis=0) if name in TOTALS else rows[heaviest, every]
        for name, rows in each.items()
    }
