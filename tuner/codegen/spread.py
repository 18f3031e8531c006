"""Loads of lanes at a stride: the whole vectors to load, and each lane's position in them."""

from __future__ import annotations

from dataclasses import dataclass

MAX_LANE_STRIDE = 4
"""The largest stride for which whole vectors are loaded; beyond it most of a vector is unused."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The vectors to load for strided lanes. They begin at the elements `starts`, counted from the
    element of lane 0. `lanes_of` has the lane of each of their elements, or None for an unused
    element."""

    starts: tuple[int, ...]
    lanes_of: tuple[tuple[int | None, ...], ...]

    @classmethod
    def of(cls, step: int, lanes: int) -> Spread | None:
        """Return the vectors for lanes at stride `step`, which may be negative, or None if there is
        one lane or the stride is 0, 1 or too large. The vectors do not extend beyond the outer
        lanes."""
        if lanes < 2 or step in (0, 1) or abs(step) > MAX_LANE_STRIDE:
            return None
        last = step * (lanes - 1)
        low, high = min(0, last), max(0, last)
        starts = tuple(min(at, high + 1 - lanes) for at in range(low, high + 1, lanes))
        left = {step * lane: lane for lane in range(lanes)}
        lanes_of = tuple(tuple(left.pop(start + n, None) for n in range(lanes)) for start in starts)
        return cls(starts, lanes_of)

    @classmethod
    def shared(cls, step: int, lanes: int, phase: int) -> Spread:
        """Return the vectors for lanes at stride `step` > 1, with lane 0 at element `phase` of the
        vectors. The vectors are the same for every phase below `step`."""
        every = [divmod(n, step) for n in range(step * lanes)]
        lane_of = [lane if at == phase else None for lane, at in every]
        starts = tuple(n * lanes for n in range(step))
        lanes_of = tuple(tuple(lane_of[start : start + lanes]) for start in starts)
        return cls(tuple(start - phase for start in starts), lanes_of)

    def reach(self) -> tuple[int, int]:
        """Return the first and the last element that is loaded."""
        return self.starts[0], self.starts[-1] + len(self.lanes_of[-1]) - 1
