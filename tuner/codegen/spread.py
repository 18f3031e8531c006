"""Lanes that lie a few elements apart: which whole vectors hold them, and where in these."""

from __future__ import annotations

from dataclasses import dataclass

MAX_LANE_STRIDE = 4
"""Longest step taken from whole vectors; with longer ones more is loaded than is used."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Vectors begin at the elements `starts`, counted from the element of lane 0; `taken` says of
    each of their elements which lane takes it."""

    starts: tuple[int, ...]
    taken: tuple[tuple[int | None, ...], ...]

    @classmethod
    def of(cls, step: int, lanes: int) -> Spread | None:
        """For lanes `step` elements apart, which may be negative; None where that is too far. The
        vectors hold nothing before the first and nothing behind the last element of a lane."""
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
        """For lanes `step` > 1 elements apart of which the first is element `phase` of the vectors:
        the same vectors for every phase below `step`."""
        every = [divmod(n, step) for n in range(step * lanes)]
        lane_of = [lane if at == phase else None for lane, at in every]
        starts = tuple(n * lanes for n in range(step))
        taken = tuple(tuple(lane_of[start : start + lanes]) for start in starts)
        return cls(tuple(start - phase for start in starts), taken)

    def reach(self) -> tuple[int, int]:
        """The first and the last element that is loaded."""
        return self.starts[0], self.starts[-1] + len(self.taken[-1]) - 1
