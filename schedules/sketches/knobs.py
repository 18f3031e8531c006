"""What a setting says: the values of a sketch's knobs, and the trace they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from ..arrays import FloatArray, IntArray
from ..space import Knob, Part
from ..trace import Trace
from .writer import TraceWriter


class HasKnobs(Protocol):
    """What settings can be read for."""

    @property
    def knobs(self) -> tuple[Knob, ...]: ...


class PartSketch(Part, Protocol):
    """A part that can be written down."""

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other parts' steps already."""
        ...


class Knobbed:
    """What the sketches of groups have in common: they ask for knobs by name, never by place."""

    def values(self: HasKnobs, settings: IntArray) -> dict[str, IntArray]:
        """The value of every knob in each of `settings` (P, J), each (P,)."""
        settings = np.atleast_2d(settings)
        return {
            knob.name: np.asarray(knob.values, np.int64)[settings[:, n]]
            for n, knob in enumerate(self.knobs)
        }

    def chosen(self: HasKnobs, setting: Sequence[int]) -> dict[str, int]:
        """The value of every knob in one setting."""
        return {k.name: int(k.values[i]) for k, i in zip(self.knobs, setting, strict=True)}

    def clipped(self: HasKnobs, places: Mapping[str, int]) -> tuple[int, ...]:
        """The setting with every knob at its place in `places`, or at its last value before."""
        return tuple(min(places[knob.name], len(knob.values) - 1) for knob in self.knobs)

    def trace(self: PartSketch, setting: Sequence[int]) -> Trace:
        """The trace of one feasible setting."""
        writer = TraceWriter(self.workload)
        self.write(writer, setting)
        return writer.trace


def as_floats(values: Mapping[str, IntArray]) -> dict[str, FloatArray]:
    """`values` for arithmetic with shares and times."""
    return {name: value.astype(np.float64) for name, value in values.items()}
