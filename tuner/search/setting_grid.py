"""The grid of all settings of a sketch: codes, enumeration, sampling and neighbours.

Up to 2**62 points, a code is a mixed-radix integer. A program of many parts has more points: its
code is the setting itself, each knob an unsigned integer of one or two bytes, the first knob first.
Codes of both kinds sort like their settings; only NumPy and this module depend on their content. P
is a number of settings, J the number of knobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tilewright.schedules.arrays import IntArray
from tilewright.schedules.space import Candidate, ScheduleSpace, Sketch, SpacePart

CHUNK = 1 << 15
"""Number of points processed together: the arrays of a chunk fit in the caches of one core."""

MAX_INT64_CODE = 1 << 62
"""Grids with fewer points have integer codes."""

Codes: TypeAlias = npt.NDArray[Any]
"""Points of one grid, shape (P,), with the grid's `dtype`."""


@dataclass(frozen=True)
class SettingGrid:
    """All settings of the sketch with index `index`. The lowest code is the first value of every
    knob."""

    index: int
    sketch: Sketch | SpacePart
    sizes: tuple[int, ...]
    of_parts: tuple[SettingGrid, ...] = ()

    @cached_property
    def points(self) -> int:
        """The number of settings, feasible or not, which may exceed 64 bits."""
        return prod(self.sizes)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The type of a code: int64, or the bytes of a setting."""
        if self.points < MAX_INT64_CODE:
            return np.dtype(np.int64)
        return np.dtype((np.void, len(self.sizes) * self._digit.itemsize))

    @property
    def parts(self) -> tuple[SettingGrid, ...]:
        """The grids whose product this grid is: one per part of the sketch, because knobs of
        different parts do not limit each other, or else the grid itself."""
        return self.of_parts or (self,)

    def decode(self, codes: Codes) -> IntArray:
        """Return the settings of (P,) codes, shape (P, J). The last knob varies fastest."""
        if not self.sizes:
            return np.zeros((len(codes), 0), np.int64)
        if self.dtype.kind == "V":
            digits = np.ascontiguousarray(codes).view(self._digit)
            return digits.reshape(len(codes), len(self.sizes)).astype(np.int64)
        # one contiguous row per knob, because spaces and models compute with whole columns
        columns = np.empty((len(self.sizes), len(codes)), np.int64)
        rest = np.asarray(codes, np.int64)
        # `np.unravel_index` supports at most 64 knobs.
        for column, size in zip(reversed(columns), reversed(self.sizes), strict=True):
            if size == 1:
                column[:] = 0
                continue
            above = rest // size
            np.subtract(rest, above * size, out=column)
            rest = above
        return columns.T

    def encode(self, settings: IntArray) -> Codes:
        """Return the codes of (P, J) settings, shape (P,)."""
        if not self.sizes:
            return np.zeros(len(settings), np.int64)
        if self.dtype.kind == "V":
            digits = np.ascontiguousarray(settings, self._digit)
            return digits.view(self.dtype).reshape(len(settings))
        weights = [prod(self.sizes[j + 1 :]) for j in range(len(self.sizes))]
        return np.asarray(settings, np.int64) @ np.array(weights, np.int64)

    def candidate(self, code: Any) -> Candidate:
        """Return the candidate of one element of a `Codes` array."""
        setting = self.decode(np.asarray([code], self.dtype))[0]
        return Candidate(self.index, tuple(setting.tolist()))

    def feasible_codes(self) -> Iterator[Codes]:
        """Yield the codes of all feasible settings, ascending, in chunks."""
        if self.dtype.kind == "V":
            yield from (self.encode(rows) for rows in self._feasible_rows())
            return
        for start in range(0, self.points, CHUNK):
            codes = np.arange(start, min(start + CHUNK, self.points), dtype=np.int64)
            yield codes[self.sketch.feasible(self.decode(codes))]

    def some_feasible(self, most: int) -> IntArray:
        """Return feasible settings, shape (P, J): all of them, ascending, if the grid has at most
        `CHUNK` points, otherwise up to `most` random ones, with a fixed seed."""
        if self.points <= CHUNK:
            return self.decode(np.concatenate(list(self.feasible_codes())))
        return self.sample(np.random.default_rng(0), most)

    def sample(self, rng: np.random.Generator, count: int) -> IntArray:
        """Return at most `count` distinct feasible settings, uniformly at random, shape (P, J).

        If feasible settings are too rare to draw, settings near the default are returned.
        """
        found = np.empty(0, self.dtype)
        for _ in range(8):
            drawn = self._draw(rng, max(4 * count, 256))
            found = _distinct(np.concatenate([found, self.encode(drawn)]))
            if len(found) >= count:
                return self.decode(found[:count])
        near = self.near(np.array([self.sketch.default()], np.int64), rng, 16 * count)
        found = _distinct(np.concatenate([found, self.encode(near)]))
        return self.decode(found[:count])

    def near(self, settings: IntArray, rng: np.random.Generator, count: int) -> IntArray:
        """Return `settings` (P, J) and up to `count` feasible settings a few knob changes from
        them."""
        if not self.sizes:
            return settings
        start = settings[rng.integers(len(settings), size=count)]
        fresh = self._random(rng, count)
        changed = np.where(rng.random(start.shape) < min(2.0 / len(self.sizes), 1.0), fresh, start)
        return np.concatenate([settings, changed[self.sketch.feasible(changed)]])

    def neighbours(self, *settings: tuple[int, ...]) -> IntArray:
        """Return the feasible settings with one knob moved by one or two places, shape (N, J): the
        neighbours of the first of `settings`, nearest first, then those of the next."""
        sizes = np.array(self.sizes, np.int64)
        moves = np.concatenate(
            [step * np.eye(len(sizes), dtype=np.int64) for step in (1, -1, 2, -2)]
        )
        start = np.array(settings, np.int64).reshape(len(settings), 1, len(sizes))
        near = (start + moves).reshape(-1, len(sizes))
        near = near[((near >= 0) & (near < sizes)).all(axis=1)]
        return np.asarray(near[self.sketch.feasible(near)] if len(near) else near)

    @cached_property
    def _digit(self) -> np.dtype[Any]:
        """The type of one knob in a code of bytes; big-endian, so that bytes sort like numbers."""
        largest = max(self.sizes, default=1) - 1
        return np.dtype(">u1" if largest < 1 << 8 else ">u2" if largest < 1 << 16 else ">u4")

    def _random(self, rng: np.random.Generator, count: int) -> IntArray:
        drawn: IntArray = rng.integers(0, np.array(self.sizes), size=(count, len(self.sizes)))
        return drawn

    def _draw(self, rng: np.random.Generator, count: int) -> IntArray:
        """Return at most `count` feasible settings, uniform, with repetition, shape (P, J).

        Each part of a program is drawn separately: if 1 % of each of 64 parts is feasible, a draw
        of all parts together is never feasible.
        """
        if len(self.parts) == 1:
            drawn = self._random(rng, count)
            return drawn[self.sketch.feasible(drawn)]
        each = []
        for part in self.parts:
            found = part._draw(rng, count)
            if not len(found):
                found = part.near(np.array([part.sketch.default()], np.int64), rng, count)
            each.append(found[rng.integers(len(found), size=count)])
        return np.hstack(each)

    def _feasible_rows(self) -> Iterator[IntArray]:
        """Yield all feasible settings, ascending, in chunks of shape (P, J).

        Parts are enumerated in nested loops, so that an infeasible setting of one part is never
        combined.
        """
        first, *others = self.parts
        if others:
            yield from _combined(first, others)
        else:
            yield from (rows[self.sketch.feasible(rows)] for rows in self._rows())

    def _rows(self) -> Iterator[IntArray]:
        """Yield all settings, ascending, in chunks of shape (P, J) of at most `CHUNK` rows, or one
        knob's values."""
        split = len(self.sizes)
        while split and prod(self.sizes[split - 1 :]) <= CHUNK:
            split -= 1
        fast = self.sizes[split:]
        block = np.indices(fast, np.int64).reshape(len(fast), prod(fast)).T
        for slow in product(*(range(size) for size in self.sizes[:split])):
            yield np.hstack([np.tile(np.array(slow, np.int64), (len(block), 1)), block])


def _combined(first: SettingGrid, rest: list[SettingGrid]) -> Iterator[IntArray]:
    """Yield all combinations of feasible settings of `first` and `rest`, ascending, in chunks."""
    if not rest:
        yield from first._feasible_rows()
        return
    for heads in first._feasible_rows():
        for head in heads:
            for tails in _combined(rest[0], rest[1:]):
                yield np.hstack([np.tile(head, (len(tails), 1)), tails])


def setting_grid_of(index: int, sketch: Sketch) -> SettingGrid:
    """Return the grid of `sketch`, which has index `index` in its space."""
    parts = sketch.parts if len(sketch.parts) > 1 else ()
    own = tuple(SettingGrid(n, part, _sizes(part)) for n, part in enumerate(parts))
    return SettingGrid(index, sketch, _sizes(sketch), own)


def _sizes(sketch: Sketch | SpacePart) -> tuple[int, ...]:
    return tuple(len(knob.values) for knob in sketch.knobs)


def setting_grids(space: ScheduleSpace) -> tuple[SettingGrid, ...]:
    """Return one grid for each sketch of the space."""
    return tuple(setting_grid_of(index, sketch) for index, sketch in enumerate(space.sketches))


def _distinct(codes: Codes) -> Codes:
    """Return the codes without repetition, in order of first appearance."""
    _, first = np.unique(codes, return_index=True)
    return codes[np.sort(first)]


BestOf = tuple[Codes, npt.NDArray[np.float64]]


def keep_best(codes: Codes, scores: npt.NDArray[np.float64], count: int) -> BestOf:
    """Return the `count` highest-scoring distinct codes, best first. Equal scores are in order of
    code."""
    distinct, first = np.unique(codes, return_index=True)
    values = scores[first]
    order = np.lexsort((distinct, -values))[:count]
    return distinct[order], values[order]
