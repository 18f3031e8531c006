"""Lanes that lie a few elements apart: which whole vectors hold them, and where in these."""

from __future__ import annotations

from dataclasses import dataclass

MOST_STEP = 4
"""Longest step taken from whole vectors; with longer ones more is loaded than is used."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Vectors begin at the elements `starts`, counted from the element of lane 0; `taken` says of
    each of their elements which lane takes it. They hold nothing before the first and nothing
    behind the last element that a lane takes."""

    starts: tuple[int, ...]
    taken: tuple[tuple[int | None, ...], ...]

    @classmethod
    def of(cls, step: int, lanes: int) -> Spread | None:
        """For lanes `step` elements apart, which may be negative; None where that is too far."""
        if lanes < 2 or step in (0, 1) or abs(step) > MOST_STEP:
            return None
        last = step * (lanes - 1)
        low, high = min(0, last), max(0, last)
        starts = tuple(min(at, high + 1 - lanes) for at in range(low, high + 1, lanes))
        left = {step * lane: lane for lane in range(lanes)}
        taken = tuple(tuple(left.pop(start + n, None) for n in range(lanes)) for start in starts)
        return cls(starts, taken)
