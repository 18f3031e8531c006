"""Settings: the values of a sketch's knobs, as fields of a dataclass of its own.

A sketch declares each knob once, as a field of its settings: its name, its values, its default. The
fields are arrays (P,) for an array of settings, and integers for a single one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import cached_property
from typing import Any, ClassVar, Generic, Protocol, TypeVar, dataclass_transform

import numpy as np

from ..arrays import BoolArray, IntArray
from ..hardware import USABLE_SHARE
from ..memory_use import MemoryUse
from ..space import Knob, SpacePart
from ..target import Target
from ..workload.workload import Workload
from .writer import TraceWriter

POWERS = (1, 2, 4, 8)
"""Values of knobs whose intermediate values would hardly differ."""

N = TypeVar("N")
"""The type of the fields of settings: arrays (P,), integers, or the values that a sketch offers."""

Arrays = TypeVar("Arrays")
"""The type of the settings of a sketch with array fields."""

Ints = TypeVar("Ints")
"""The type of its settings with integer fields."""

Class = TypeVar("Class")


def knob(
    values: Callable[[Any], Sequence[int]],
    usual: Callable[[Any], int] | int = 0,
    absent: int = 0,
) -> Any:
    """A field that is a knob. `values` are those that a sketch offers, in a meaningful order;
    `usual` is the place of the default among them, the last one if there are fewer. A sketch that
    offers none has no such knob: the field is `absent`."""
    return field(metadata={"values": values, "usual": usual, "absent": absent})


def switch(offered: object) -> tuple[int, ...]:
    """The values of a knob that is on or off, if it is `offered`."""
    return (0, 1) if offered else (0,)


def parallel_knob(several: Callable[[Any], bool] = lambda sketch: True) -> Any:
    """Whether threads share the tasks, if there are several threads and tasks."""
    return knob(lambda sketch: switch(sketch.target.threads > 1 and several(sketch)), usual=1)


def nontemporal_knob(values: Callable[[Any], Sequence[int]]) -> Any:
    """Whether results are stored past the caches; by default if all arguments together almost fill
    the last cache."""

    def pays(sketch: Any) -> int:
        last = max((cache.bytes for cache in sketch.target.caches), default=0)
        total = sum(tensor.bytes for tensor in sketch.workload.arguments)
        return int(total > USABLE_SHARE * last > 0)

    return knob(values, usual=pays)


@dataclass_transform(frozen_default=True, field_specifiers=(knob, parallel_knob, nontemporal_knob))
def settings(cls: type[Class]) -> type[Class]:
    """Class decorator: a class of knobs becomes the dataclass of a sketch's settings."""
    return dataclass(frozen=True)(cls)


class PartSketch(SpacePart, Protocol):
    """A part of a program that can be written as a trace."""

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Append the steps of one setting to a trace that may hold steps of other parts."""
        ...


class Knobbed(Generic[Arrays, Ints]):
    """The base of sketches: their knobs are the fields of `SETTINGS`."""

    SETTINGS: ClassVar[Any]
    workload: Workload
    target: Target

    @cached_property
    def _declared(self) -> list[tuple[Field[Any], tuple[int, ...]]]:
        """The fields of settings that are knobs, and their values."""
        own = [one for one in fields(self.SETTINGS) if "values" in one.metadata]
        return [(one, tuple(one.metadata["values"](self))) for one in own]

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        return tuple(Knob(one.name, values) for one, values in self._declared if values)

    def values(self, settings: IntArray) -> Arrays:
        """The knob values of (P, J) `settings`."""
        settings = np.atleast_2d(settings)
        columns = iter(settings.T)
        found = {
            one.name: np.asarray(values, np.int64)[next(columns)]
            if values
            else np.full(len(settings), one.metadata["absent"])
            for one, values in self._declared
        }
        arrays: Arrays = self.settings_of(found)
        return arrays

    def chosen(self, setting: Sequence[int]) -> Ints:
        """The knob values of one setting."""
        places = iter(setting)
        found = {
            one.name: int(values[next(places)]) if values else one.metadata["absent"]
            for one, values in self._declared
        }
        ints: Ints = self.settings_of(found)
        return ints

    def setting_of(self, values: Ints) -> tuple[int, ...]:
        """The setting that has these knob values."""
        return tuple(knob.values.index(getattr(values, knob.name)) for knob in self.knobs)

    def settings_of(self, values: Mapping[str, Any]) -> Any:
        """The settings with these knob values."""
        return self.SETTINGS(**values)

    def default(self) -> tuple[int, ...]:
        """The setting with every knob at its default."""
        return self.with_defaults({})

    def with_defaults(self, places: Mapping[str, int]) -> tuple[int, ...]:
        """The setting with the knobs of `places` at these places, the others at their defaults."""
        found = []
        for one, values in self._declared:
            usual = one.metadata["usual"]
            if values:
                place = usual(self) if callable(usual) else usual
                found.append(min(places.get(one.name, place), len(values) - 1))
        return tuple(found)

    def feasible_of(self, tried: Mapping[str, Sequence[int]]) -> IntArray:
        """(P, J) the feasible settings with the `tried` values, and with all values of other knobs;
        the last knob varies fastest."""
        values = (tried.get(knob.name, knob.values) for knob in self.knobs)
        pairs = zip(self.knobs, values, strict=True)
        places = [[knob.values.index(x) for x in some] for knob, some in pairs]
        settings = np.stack(np.meshgrid(*places, indexing="ij"), axis=-1).reshape(-1, len(places))
        return settings[self.feasible(settings)]

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) true for all settings, unless the sketch has limits."""
        return np.ones(len(np.atleast_2d(settings)), np.bool_)

    def memory(self, settings: IntArray) -> MemoryUse:
        """No memory use beside the loads and stores of leaves, unless the sketch states some."""
        return MemoryUse()


def nontemporal_values(
    workload: Workload, tensor: str, target: Target, flat: bool = False
) -> tuple[int, ...]:
    """The values of the knob `nontemporal_stores` for the stage that computes `tensor`. The knob is
    offered for outputs that no stage reads and that exceed a core's own caches. Rows must be
    aligned to vectors, since unaligned stores are never non-temporal, unless the tensor is walked
    as one row (`flat`)."""
    if tensor not in workload.outputs or workload.consumers(tensor):
        return (0,)
    if not (flat or has_aligned_rows(workload, tensor, target)):
        return (0,)
    large = workload.tensors[tensor].bytes > target.own_cache_bytes
    return (0, 1) if large else (0,)


def has_aligned_rows(workload: Workload, tensor: str, target: Target) -> bool:
    """Whether every row begins at a multiple of a vector, if the first one does."""
    found = workload.tensors[tensor]
    if len(found.shape) < 2:
        return True
    return found.shape[-1] * found.dtype.bytes % (target.vector_bits // 8) == 0
