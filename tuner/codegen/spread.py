"""Strided loads: the vectors that cover the elements of all lanes, and each lane's position in
them."""

from __future__ import annotations

from dataclasses import dataclass

MAX_LANE_STRIDE = 4
"""The largest stride for which whole vectors are loaded. For larger strides, most of a vector is
unused."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A strided load as loads of whole vectors: where each vector starts, and which lane uses each
    of its elements. Lane i reads element i * stride."""

    starts: tuple[int, ...]
    """The first element of each vector, relative to the element of lane 0."""
    lanes_of: tuple[tuple[int | None, ...], ...]
    """For each element of each vector, the lane that uses it, or None."""

    @classmethod
    def of(cls, step: int, lanes: int) -> Spread | None:
        """Return the vectors for lanes at stride `step`, which may be negative. Return None if
        there is one lane, or if the stride is 0, 1 or too large.

        The vectors do not extend beyond the elements of the first and the last lane.
        """
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
        """Return the vectors for lanes at stride `step` > 1. Lane 0 is at element `phase` of the
        first vector, 0 <= `phase` < `step`. Loads that differ only in `phase` have the same
        vectors."""
        every = [divmod(n, step) for n in range(step * lanes)]
        lane_of = [lane if at == phase else None for lane, at in every]
        starts = tuple(n * lanes for n in range(step))
        lanes_of = tuple(tuple(lane_of[start : start + lanes]) for start in starts)
        return cls(tuple(start - phase for start in starts), lanes_of)

    def reach(self) -> tuple[int, int]:
        """Return the first and the last element that is loaded, relative to the element of lane
        0."""
        return self.starts[0], self.starts[-1] + len(self.lanes_of[-1]) - 1
