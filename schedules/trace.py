"""Trace: a schedule as a tuple of primitives. Stub; see primitives/."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

TRACE_VERSION = 1


@dataclass(frozen=True, slots=True)
class Trace:
    steps: tuple[Any, ...] = ()

    def to_json(self) -> list[Any]:
        """JSON data; equal traces give equal data."""
        return [s.to_json() for s in self.steps]

    @classmethod
    def from_json(cls, document: list[Any]) -> Self:
        """ScheduleError if the document is not a trace."""
        raise NotImplementedError
