"""Analyses of parts with few settings, made for all settings at once.

One analysis of a part takes about as long for a thousand settings as for one. A search over a
program of many parts asks for each part again and again, with a few new settings each time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np

from tilewright.schedules.arrays import IntArray
from tilewright.schedules.space import SpacePart

from .analysis import Analysis

MOST_SETTINGS = 4096
"""Most settings of a part that are analysed at once."""

CALLS_BEFORE = 3
"""Calls for a part that are answered one by one before all of its settings are analysed. A choice
without a search needs no more."""

Analyse: TypeAlias = Callable[[SpacePart, IntArray], Analysis]


@dataclass(frozen=True, slots=True)
class _PartTable:
    part: SpacePart
    weights: IntArray
    """The distance in `places` between neighbouring values of each knob, shape (J,)."""
    places: IntArray
    """The position of each setting in `analysis`, or -1 if it is not feasible."""
    analysis: Analysis


class PartTables:
    """The tables of the parts of a space. Parts are compared by identity."""

    def __init__(self) -> None:
        self._calls = Counter[int]()
        self._tables: dict[int, _PartTable] = {}

    def find(self, part: SpacePart, settings: IntArray, analyse: Analyse) -> Analysis:
        """Return the analysis of `settings` (P, J) of `part`, as `analyse` makes it."""
        table = self._tables.get(id(part))
        if table is None:
            self._calls[id(part)] += 1
            if self._calls[id(part)] <= CALLS_BEFORE or _count(part) > MOST_SETTINGS:
                return analyse(part, settings)
            table = self._tables[id(part)] = _table(part, analyse)
        places = table.places[settings @ table.weights]
        return table.analysis.at(places) if (places >= 0).all() else analyse(part, settings)


def _count(part: SpacePart) -> int:
    return prod(len(knob.values) for knob in part.knobs)


def _table(part: SpacePart, analyse: Analyse) -> _PartTable:
    sizes = [len(knob.values) for knob in part.knobs]
    grid = np.indices(sizes).reshape(len(sizes), -1).T if sizes else np.zeros((1, 0), np.int64)
    is_feasible = part.feasible(grid)
    places = np.where(is_feasible, np.cumsum(is_feasible) - 1, -1)
    weights = np.array([prod(sizes[n + 1 :]) for n in range(len(sizes))], np.int64)
    return _PartTable(part, weights, places, analyse(part, grid[is_feasible]))
