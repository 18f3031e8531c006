"""The points of one sketch as integers: mixed-radix codes, listing, sampling and neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
import numpy.typing as npt

from schedules.space import Candidate, IntArray, ScheduleSpace, Sketch

CHUNK = 1 << 15
"""Points handled at once: the arrays of a chunk stay in the caches of one core."""


@dataclass(frozen=True, slots=True)
class Lattice:
    """All settings of sketch number `index`; code 0 is the first value of every knob."""

    index: int
    sketch: Sketch
    sizes: tuple[int, ...]

    @property
    def points(self) -> int:
        return prod(self.sizes)

    def decode(self, codes: IntArray) -> IntArray:
        """(P, J) settings of (P,) codes; the last knob varies fastest."""
        if not self.sizes:
            return np.zeros((len(codes), 0), np.int64)
        settings = np.empty((len(codes), len(self.sizes)), np.int64)
        for j, column in enumerate(np.unravel_index(codes, self.sizes)):
            settings[:, j] = column
        return settings

    def encode(self, settings: IntArray) -> IntArray:
        """(P,) codes of (P, J) settings."""
        if not self.sizes:
            return np.zeros(len(settings), np.int64)
        return np.asarray(np.ravel_multi_index(tuple(settings.T), self.sizes), np.int64)

    def code(self, candidate: Candidate) -> int:
        return int(self.encode(np.array([candidate.setting], np.int64))[0])

    def candidate(self, code: int) -> Candidate:
        setting = self.decode(np.array([code], np.int64))[0]
        return Candidate(self.index, tuple(setting.tolist()))

    def feasible_codes(self) -> Iterator[IntArray]:
        """The codes of all feasible settings, ascending, chunk by chunk."""
        for start in range(0, self.points, CHUNK):
            codes = np.arange(start, min(start + CHUNK, self.points), dtype=np.int64)
            yield codes[self.sketch.feasible(self.decode(codes))]

    def sample(self, rng: np.random.Generator, count: int) -> IntArray:
        """(<= count, J) distinct feasible settings, uniformly at random.

        Falls back on settings near the default where feasible ones are too rare to hit.
        """
        found: IntArray = np.empty(0, np.int64)
        for _ in range(8):
            drawn = self._random(rng, max(4 * count, 256))
            good = self.encode(drawn[self.sketch.feasible(drawn)])
            found = _distinct(np.concatenate([found, good]))
            if len(found) >= count:
                return self.decode(found[:count])
        near = self.near(np.array([self.sketch.default()], np.int64), rng, 16 * count)
        found = _distinct(np.concatenate([found, self.encode(near)]))
        return self.decode(found[:count])

    def near(self, settings: IntArray, rng: np.random.Generator, count: int) -> IntArray:
        """(<= count + P, J) feasible settings a few knob changes away from `settings` (P, J)."""
        if not self.sizes:
            return settings  # int64: what unravel_index gives
        start = settings[rng.integers(len(settings), size=count)]
        fresh = self._random(rng, count)
        changed = np.where(rng.random(start.shape) < min(2.0 / len(self.sizes), 1.0), fresh, start)
        return np.concatenate([settings, changed[self.sketch.feasible(changed)]])

    def neighbours(self, setting: tuple[int, ...]) -> IntArray:
        """(N, J) feasible settings with one knob moved by one or two places, nearest first."""
        rows = []
        for distance in (1, -1, 2, -2):
            for j, size in enumerate(self.sizes):
                if 0 <= setting[j] + distance < size:
                    row = list(setting)
                    row[j] += distance
                    rows.append(row)
        array = np.array(rows, np.int64).reshape(len(rows), len(self.sizes))
        return array[self.sketch.feasible(array)] if len(array) else array

    def _random(self, rng: np.random.Generator, count: int) -> IntArray:
        drawn: IntArray = rng.integers(0, np.array(self.sizes), size=(count, len(self.sizes)))
        return drawn


def lattices(space: ScheduleSpace) -> tuple[Lattice, ...]:
    """One lattice a sketch. ValueError for a sketch of 2**62 points or more."""
    result = []
    for index, sketch in enumerate(space.sketches):
        lattice = Lattice(index, sketch, tuple(len(k.values) for k in sketch.knobs))
        if lattice.points >= 1 << 62:
            raise ValueError(
                f"sketch {sketch.name}: a space has fewer than 2**62 points, got {lattice.points}"
            )
        result.append(lattice)
    return tuple(result)


def _distinct(codes: IntArray) -> IntArray:
    """The codes without repetition, in order of first appearance."""
    _, first = np.unique(codes, return_index=True)
    return codes[np.sort(first)]


BestOf = tuple[IntArray, npt.NDArray[np.float64]]


def keep_best(codes: IntArray, scores: npt.NDArray[np.float64], count: int) -> BestOf:
    """The `count` highest-scoring distinct codes, best first; equal scores in order of code."""
    distinct, first = np.unique(codes, return_index=True)
    values = scores[first]
    order = np.lexsort((distinct, -values))[:count]
    return distinct[order], values[order]
