"""Every candidate in a fixed, well-spread order: nothing learned, nothing random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd

import numpy as np

from costmodel.prior import Prior
from schedules.space import Candidate, ScheduleSpace

from .base import SearchGoal, Told
from .first_look import first_look
from .lattice import CHUNK, Lattice, lattices
from .ledger import Ledger
from .random_search import predict_and_ask


class GridStrategy:
    """`SearchStrategy` that visits the whole lattice; any prefix is spread evenly over it.

    Step i of a sketch with N points goes to code i * s mod N, with s near N / golden ratio and
    prime to N, so every point comes exactly once. Sketches take turns. The seed changes nothing.
    """

    name = "grid"
    stop_reason = None

    def __init__(self, space: ScheduleSpace, goal: SearchGoal) -> None:
        self.space = space
        self.ledger = Ledger()
        self._prior = Prior(space)
        self._walks = [_Walk(grid) for grid in lattices(space)]

    @property
    def predictions(self) -> Mapping[Candidate, float]:
        return self.ledger.predictions

    def ask(self, count: int) -> list[Candidate]:
        found: list[Candidate] = []
        if not self.ledger.asked:
            found.append(first_look(self.space, self._prior, keep=1).default)
        while len(found) < count:
            turn = [c for c in (walk.next() for walk in self._walks) if c is not None]
            if not turn:
                break
            found = self.ledger.new([*found, *turn])
        return predict_and_ask(self.ledger, self._prior, found[:count])

    def tell(self, results: Sequence[Told]) -> None:
        self.ledger.tell(results)


class _Walk:
    """The feasible points of one lattice in golden-ratio order."""

    def __init__(self, grid: Lattice) -> None:
        self.grid = grid
        self._stride = _coprime_near(grid.points, int(grid.points * 0.6180339887498949))
        self._visited = 0
        self._ready: list[Candidate] = []

    def next(self) -> Candidate | None:
        while not self._ready and self._visited < self.grid.points:
            count = min(CHUNK, self.grid.points - self._visited)
            steps = range(self._visited, self._visited + count)
            # Python integers: step * stride may exceed 64 bits.
            codes = np.array([i * self._stride % self.grid.points for i in steps], np.int64)
            self._visited += count
            settings = self.grid.decode(codes)
            good = settings[self.grid.sketch.feasible(settings)]
            self._ready = [Candidate(self.grid.index, tuple(r)) for r in good.tolist()][::-1]
        return self._ready.pop() if self._ready else None


def _coprime_near(modulus: int, start: int) -> int:
    """The first number >= max(start, 1) that shares no factor with `modulus`."""
    value = max(start, 1)
    while gcd(value, modulus) != 1:
        value += 1
    return value
