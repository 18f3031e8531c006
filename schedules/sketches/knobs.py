"""Settings: the values of a sketch's knobs, as fields of a dataclass per sketch.

A sketch declares each knob once, as a field of its settings with a name, values and a default. The
fields are arrays (P,) for an array of settings, and integers for a single setting.
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
"""Default values of a knob that counts something. Values in between hardly differ."""

N = TypeVar("N")
"""Type of the fields of settings: arrays (P,), integers, or tuples of all values of the knobs."""

Arrays = TypeVar("Arrays")
"""Settings class of a sketch with array fields."""

Ints = TypeVar("Ints")
"""Settings class of a sketch with integer fields."""

Class = TypeVar("Class")


def knob(
    values: Callable[[Any], Sequence[int]],
    usual: Callable[[Any], int] | int = 0,
    absent: int = 0,
) -> Any:
    """Declare a field that is a knob. `values(sketch)` returns its values, in a meaningful order.
    `usual` is the index of the default value, clamped to the last index. If there are no values,
    the sketch does not have the knob and the field is `absent`."""
    return field(metadata={"values": values, "usual": usual, "absent": absent})


def switch(offered: object) -> tuple[int, ...]:
    """Return the values of an on/off knob: (0, 1) if the choice is `offered`, else (0,)."""
    return (0, 1) if offered else (0,)


def parallel_knob(several: Callable[[Any], bool] = lambda sketch: True) -> Any:
    """Declare the knob for parallel execution. It can be 1 only if the target has several threads
    and `several(sketch)` is true."""
    return knob(lambda sketch: switch(sketch.target.threads > 1 and several(sketch)), usual=1)


def nontemporal_knob(values: Callable[[Any], Sequence[int]]) -> Any:
    """Declare the knob for non-temporal stores of results. By default it is 1 if all arguments
    together exceed the usable part of the last cache."""

    def pays(sketch: Any) -> int:
        last = max((cache.bytes for cache in sketch.target.caches), default=0)
        total = sum(tensor.bytes for tensor in sketch.workload.arguments)
        return int(total > USABLE_SHARE * last > 0)

    return knob(values, usual=pays)


@dataclass_transform(frozen_default=True, field_specifiers=(knob, parallel_knob, nontemporal_knob))
def settings(cls: type[Class]) -> type[Class]:
    """Make `cls`, a class whose fields are knobs, the settings dataclass of a sketch."""
    return dataclass(frozen=True, eq=False, repr=False)(cls)


class PartSketch(SpacePart, Protocol):
    """The sketch of one fusion group. A program consists of one or more of these parts."""

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Append the steps of one setting to a trace that may contain steps of other parts."""
        ...


class Knobbed(Generic[Arrays, Ints]):
    """Base class of sketches. Their knobs are the fields of the dataclass `SETTINGS`."""

    SETTINGS: ClassVar[Any]
    workload: Workload
    target: Target

    @cached_property
    def _declared(self) -> list[tuple[Field[Any], tuple[int, ...]]]:
        own = [one for one in fields(self.SETTINGS) if "values" in one.metadata]
        return [(one, tuple(one.metadata["values"](self))) for one in own]

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        return tuple(Knob(one.name, values) for one, values in self._declared if values)

    @cached_property
    def _tables(self) -> list[tuple[str, IntArray | None, int]]:
        """The name of each field, its values if it is a knob, and its value otherwise."""
        return [
            (one.name, np.array(values, np.int64) if values else None, one.metadata["absent"])
            for one, values in self._declared
        ]

    def values(self, settings: IntArray) -> Arrays:
        """Return the values of all knobs for `settings` (P, J)."""
        settings = np.atleast_2d(settings)
        columns = iter(np.ascontiguousarray(settings.T))
        found = {
            name: np.full(len(settings), absent) if values is None else values[next(columns)]
            for name, values, absent in self._tables
        }
        arrays: Arrays = self.settings_of(found)
        return arrays

    def chosen(self, setting: Sequence[int]) -> Ints:
        """Return the values of all knobs for one setting."""
        places = iter(setting)
        found = {
            one.name: int(values[next(places)]) if values else one.metadata["absent"]
            for one, values in self._declared
        }
        ints: Ints = self.settings_of(found)
        return ints

    def setting_of(self, values: Ints) -> tuple[int, ...]:
        return tuple(knob.values.index(getattr(values, knob.name)) for knob in self.knobs)

    def settings_of(self, values: Mapping[str, Any]) -> Any:
        return self.SETTINGS(**values)

    def default(self) -> tuple[int, ...]:
        return self.with_defaults({})

    def with_defaults(self, places: Mapping[str, int]) -> tuple[int, ...]:
        """Return the setting with every knob at its index in `places`, or at its default."""
        found = []
        for one, values in self._declared:
            usual = one.metadata["usual"]
            if values:
                place = usual(self) if callable(usual) else usual
                found.append(min(places.get(one.name, place), len(values) - 1))
        return tuple(found)

    def feasible_of(self, tried: Mapping[str, Sequence[int]]) -> IntArray:
        """Return the feasible settings in which some knobs have the values `tried`, shape (P, J).
        All values of the other knobs are included. The last knob varies fastest."""
        values = (tried.get(knob.name, knob.values) for knob in self.knobs)
        pairs = zip(self.knobs, values, strict=True)
        places = [[knob.values.index(x) for x in some] for knob, some in pairs]
        settings = np.stack(np.meshgrid(*places, indexing="ij"), axis=-1).reshape(-1, len(places))
        return settings[self.feasible(settings)]

    def feasible(self, settings: IntArray) -> BoolArray:
        """Return true for all settings, shape (P,). Sketches with limits override this."""
        return np.ones(len(np.atleast_2d(settings)), np.bool_)

    def memory(self, settings: IntArray) -> MemoryUse:
        """Return an empty memory use. Sketches that make copies override this."""
        return MemoryUse()


def nontemporal_values(
    workload: Workload, tensor: str, target: Target, flat: bool = False
) -> tuple[int, ...]:
    """Return the values of the knob `nontemporal_stores` for the stage that computes `tensor`.

    The knob can be 1 only if (1) `tensor` is an output that no stage reads, (2) it exceeds the
    private caches of a core, and (3) its rows start at multiples of the vector size, because these
    stores must be aligned. Condition 3 is omitted if all elements form one row (`flat`).
    """
    if tensor not in workload.outputs or workload.consumers(tensor):
        return (0,)
    if not (flat or has_aligned_rows(workload, tensor, target)):
        return (0,)
    large = workload.tensors[tensor].bytes > target.own_cache_bytes
    return (0, 1) if large else (0,)


def stores_whole_lines(stores: IntArray, run_bytes: IntArray | int, line_bytes: int) -> BoolArray:
    """Return whether settings with `nontemporal_stores` = `stores` store whole cache lines, shape
    (P,), if tiles that are stored in turn have runs of `run_bytes` in several rows.

    The processor joins such stores in a few buffers, each of one line. A line that is stored in two
    parts may be written to memory twice, with a read before, depending on the page offsets of the
    arrays. Measured on a Zen 3, whose vectors are half of a line: 5 to 90 ms for a scan of
    4096x4096 in four rows at a time, 6.8 instead of 0.8 ms for a transposition of 4096x1024.
    """
    return np.asarray((stores == 0) | (np.asarray(run_bytes) % line_bytes == 0))


def has_aligned_rows(workload: Workload, tensor: str, target: Target) -> bool:
    """Return whether every row starts at a multiple of the vector size if the first row does."""
    found = workload.tensors[tensor]
    if len(found.shape) < 2:
        return True
    return found.shape[-1] * found.dtype.bytes % (target.vector_bits // 8) == 0
