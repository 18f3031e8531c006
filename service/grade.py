"""The grades of answers; `service/answers/grades.py` defines each."""

from __future__ import annotations

from enum import StrEnum


class Grade(StrEnum):
    """How closely an answer matches the request, best first."""

    EXACT = "exact"
    SAME_CPU = "same-cpu"
    COMPATIBLE = "compatible"
    DEFAULT = "default"

    @property
    def rank(self) -> int:
        return list(Grade).index(self)

    def satisfies(self, minimum: Grade) -> bool:
        return self.rank <= minimum.rank
