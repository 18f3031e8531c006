"""Settings: the values of a sketch's knobs, and when `nontemporal_stores` is one of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import numpy as np

from ..arrays import BoolArray, IntArray
from ..hardware import USABLE_SHARE
from ..memory_use import MemoryUse
from ..space import Knob, SpacePart
from ..target import Target
from ..workload.workload import Workload
from .writer import TraceWriter

POWERS = (1, 2, 4, 8)
"""How many of something a knob offers, where a step in between would hardly differ."""


class PartSketch(SpacePart, Protocol):
    """A part that can be written down."""

    def write(self, writer: TraceWriter, setting: Sequence[int]) -> None:
        """Add the steps of one setting to a trace that may have other parts' steps already."""
        ...


class Knobbed:
    """What the sketches of groups have in common: they ask for knobs by name, never by place."""

    workload: Workload
    target: Target

    @property
    @abstractmethod
    def knobs(self) -> tuple[Knob, ...]: ...

    def parallel_knob(self, several: bool = True) -> Knob:
        """Whether threads share the tasks, where there are several of both."""
        return Knob("parallel", (0, 1) if self.target.threads > 1 and several else (0,))

    def values(self, settings: IntArray) -> dict[str, IntArray]:
        """The value of every knob in each of `settings` (P, J), each (P,)."""
        settings = np.atleast_2d(settings)
        return {
            knob.name: np.asarray(knob.values, np.int64)[settings[:, n]]
            for n, knob in enumerate(self.knobs)
        }

    def chosen(self, setting: Sequence[int]) -> dict[str, int]:
        """The value of every knob in one setting."""
        return {k.name: int(k.values[i]) for k, i in zip(self.knobs, setting, strict=True)}

    def with_defaults(self, places: Mapping[str, int]) -> tuple[int, ...]:
        """The setting with every knob at its place in `places`, or at its last value before; where
        they do not say, threads share the work and results are streamed if that pays."""
        at = {"parallel": 1, "nontemporal_stores": int(self._streams_pay()), **places}
        return tuple(min(at[knob.name], len(knob.values) - 1) for knob in self.knobs)

    def _streams_pay(self) -> bool:
        """Whether all arguments together leave little room in the last cache."""
        last = max((cache.bytes for cache in self.target.caches), default=0)
        total = sum(tensor.bytes for tensor in self.workload.arguments)
        return total > USABLE_SHARE * last > 0

    def feasible_of(self, tried: Mapping[str, Sequence[int]]) -> IntArray:
        """(P, J) the feasible settings with the values that are `tried`, of other knobs with all,
        the last knob's fastest."""
        values = (tried.get(knob.name, knob.values) for knob in self.knobs)
        pairs = zip(self.knobs, values, strict=True)
        places = [[knob.values.index(x) for x in some] for knob, some in pairs]
        settings = np.stack(np.meshgrid(*places, indexing="ij"), axis=-1).reshape(-1, len(places))
        return settings[self.feasible(settings)]

    def feasible(self, settings: IntArray) -> BoolArray:
        """(P,) all of them, if the sketch has no limits."""
        return np.ones(len(np.atleast_2d(settings)), np.bool_)

    def memory(self, settings: IntArray) -> MemoryUse:
        """Nothing beside the loads and stores of leaves, if the sketch makes no copies."""
        return MemoryUse()


Values: TypeAlias = dict[str, IntArray]
"""Of each knob, (P,)."""


def stream_values(
    workload: Workload, tensor: str, target: Target, flat: bool = False
) -> tuple[int, ...]:
    """The values of a knob `nontemporal_stores` for what computes `tensor`: offered for an output
    that nothing reads again and that no core's own caches hold. Rows must begin where vectors do,
    since others are not streamed, unless it may be walked as one row (`flat`)."""
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
