"""What sketches say of their settings, held against the nests that these are lowered to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .drawing import Counted
from .recount import program, recount

ROUNDING = 1e-6
"""Numbers that differ in a smaller share are equal: counts are made in floating point."""

BOUNDS: dict[str, float] = {}
"""How many times too large or too small a count may be; those not named are exact."""


@dataclass(frozen=True, slots=True)
class Found:
    """One count of one setting: what its sketch says, and what there is."""

    kind: str
    column: str
    said: float
    recounted: float
    where: str

    @property
    def ratio(self) -> float:
        """How many times too large or too small, >= 1; infinite beside nothing."""
        if abs(self.said - self.recounted) <= ROUNDING * max(abs(self.said), abs(self.recounted)):
            return 1.0
        low, high = sorted((self.said, self.recounted))
        return high / low if low > 0 else float("inf")

    @property
    def is_within(self) -> bool:
        return self.ratio <= BOUNDS.get(self.column, 1.0)


@dataclass(slots=True)
class Tally:
    """All of one column of one kind of sketch."""

    exact: int = 0
    within: int = 0
    outside: int = 0
    worst: Found | None = field(default=None)

    def add(self, found: Found) -> None:
        self.exact += found.ratio == 1.0
        self.within += found.ratio > 1.0 and found.is_within
        self.outside += not found.is_within
        if self.worst is None or found.ratio > self.worst.ratio:
            self.worst = found


def compared(counted: Counted) -> list[Found]:
    """Every count of one part of a setting that can be recounted."""
    real = recount(program(counted.nest, counted.stages, counted.statements))
    return [
        Found(counted.kind, column, counted.columns[column], value, counted.text)
        for column, value in real.items()
    ]


def tallied(found: Iterable[Found]) -> Mapping[tuple[str, str], Tally]:
    """By kind and column."""
    tallies: dict[tuple[str, str], Tally] = {}
    for each in found:
        tallies.setdefault((each.kind, each.column), Tally()).add(each)
    return tallies
