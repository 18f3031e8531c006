"""Strided vector loads: which whole vectors contain the lanes, and at which positions."""

from __future__ import annotations

from dataclasses import dataclass

MAX_LANE_STRIDE = 4
"""Largest stride for which whole vectors are loaded; with larger ones most of a vector is
unused."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Vectors begin at the elements `starts`, relative to the element of lane 0; `taken` gives the
    lane that takes each of their elements."""

    starts: tuple[int, ...]
    taken: tuple[tuple[int | None, ...], ...]

    @classmethod
    def of(cls, step: int, lanes: int) -> Spread | None:
        """For lanes at stride `step`, which may be negative; None if it is too large. The vectors
        do not extend beyond the first and last lane."""
        if lanes < 2 or step in (0, 1) or abs(step) > MAX_LANE_STRIDE:
            return None
        last = step * (lanes - 1)
        low, high = min(0, last), max(0, last)
        starts = tuple(min(at, high + 1 - lanes) for at in range(low, high + 1, lanes))
        left = {step * lane: lane for lane in range(lanes)}
        taken = tuple(tuple(left.pop(start + n, None) for n in range(lanes)) for start in starts)
        return cls(starts, taken)

    @classmethod
    def shared(cls, step: int, lanes: int, phase: int) -> Spread:
        """For lanes at stride `step` > 1 of which the first is element `phase` of the vectors: the
        same vectors for every phase below `step`."""
        every = [divmod(n, step) for n in range(step * lanes)]
        lane_of = [lane if at == phase else None for lane, at in every]
        starts = tuple(n * lanes for n in range(step))
        taken = tuple(tuple(lane_of[start : start + lanes]) for start in starts)
        return cls(tuple(start - phase for start in starts), taken)

    def reach(self) -> tuple[int, int]:
        """The first and the last element that is loaded."""
        return self.starts[0], self.starts[-1] + len(self.taken[-1]) - 1
