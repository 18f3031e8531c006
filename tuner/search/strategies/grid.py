"""The grid strategy: every candidate in a fixed, well-spread order, without learning or
randomness."""

from __future__ import annotations

from math import gcd, isqrt, prod

import numpy as np

from tilewright.schedules.arrays import IntArray
from tilewright.schedules.space import Candidate, ScheduleSpace

from ..base import SearchGoal
from ..model_free import ModelFreeStrategy
from ..setting_grid import CHUNK, SettingGrid, setting_grids

MAX_WALKED_POINTS = 1 << 40
"""A larger grid is not enumerated completely, because feasible points are too rare."""

MAX_PART_SETTINGS = 4096
"""Largest sample of a part's settings, if the part has too many to enumerate."""


class GridStrategy(ModelFreeStrategy):
    """A `SearchStrategy` that visits the whole grid; any prefix is spread evenly over it.

    Step i of a sketch with N points visits code i * s mod N, with s near N / golden ratio and
    coprime to N, so every point is visited exactly once. Sketches take turns. The seed has no
    effect. For a sketch with more than `MAX_WALKED_POINTS` points, the points are combinations of
    feasible settings of its parts.
    """

    name = "grid"

    def __init__(self, space: ScheduleSpace, goal: SearchGoal) -> None:
        super().__init__(space, goal)
        self._walks = [_Walk(grid) for grid in setting_grids(space)]

    def extend(self, found: list[Candidate], count: int) -> list[Candidate]:
        while len(found) < count:
            turn = [c for c in (walk.next() for walk in self._walks) if c is not None]
            if not turn:
                break
            found = self.ledger.new([*found, *turn])
        return found


class _Walk:
    """The feasible points of one grid in golden-ratio order."""

    def __init__(self, grid: SettingGrid) -> None:
        self.grid = grid
        self._tables = _tables(grid)
        self._sizes = [len(table) for table in self._tables] or [grid.points]
        self._points = prod(self._sizes)
        self._stride = _coprime_near(self._points, _golden_part(self._points))
        self._visited = 0
        self._ready: list[Candidate] = []

    def next(self) -> Candidate | None:
        while not self._ready and self._visited < self._points:
            count = min(CHUNK // len(self._sizes), self._points - self._visited)
            steps = range(self._visited, self._visited + count)
            # Python integers, because step * stride may exceed 64 bits.
            settings = self._settings([i * self._stride % self._points for i in steps])
            self._visited += count
            good = settings[self.grid.sketch.feasible(settings)]
            self._ready = [Candidate(self.grid.index, tuple(r)) for r in good.tolist()][::-1]
        return self._ready.pop() if self._ready else None

    def _settings(self, numbers: list[int]) -> IntArray:
        """Return the settings with these numbers, shape (P, J). The settings of the last part
        change fastest."""
        if not self._tables:
            return self.grid.decode(np.array(numbers, np.int64))
        columns = []
        for table in reversed(self._tables):
            columns.append(table[[number % len(table) for number in numbers]])
            numbers = [number // len(table) for number in numbers]
        return np.hstack(columns[::-1])


def _tables(grid: SettingGrid) -> list[IntArray]:
    """Return the feasible settings of each part, for a grid too large to enumerate, in which hardly
    any point is feasible in all parts.

    Return an empty list for other grids. A part with too many settings gives a fixed sample.
    """
    if grid.points <= MAX_WALKED_POINTS:
        return []
    return [part.some_feasible(MAX_PART_SETTINGS) for part in grid.parts]


def _golden_part(points: int) -> int:
    """Return `points` / golden ratio, rounded down, exact for any number of digits."""
    return (isqrt(5 * points * points) - points) // 2


def _coprime_near(modulus: int, start: int) -> int:
    """Return the first number >= max(start, 1) that shares no factor with `modulus`."""
    value = max(start, 1)
    while gcd(value, modulus) != 1:
        value += 1
    return value


STRATEGY = GridStrategy
