"""Find reads outside the bounds of a tensor, so that they can be reported to the user.

Index notation pads every read with zeros (docs/workload.md), so a wrong index is not an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..algebra.affine import Interval, interval
from ..algebra.scalar import All, Const, Load, Scalar, Select, children
from .workload import Workload


@dataclass(frozen=True, slots=True)
class PaddedRead:
    """A read of dimension `dim` of `tensor` at indices `first..last`. Some of them are outside
    `0..extent - 1`."""

    tensor: str
    dim: int
    extent: int
    first: int
    last: int

    def __str__(self) -> str:
        before = f"{-self.first} before" if self.first < 0 else ""
        after = f"{self.last - self.extent + 1} after" if self.last >= self.extent else ""
        where = " and ".join(part for part in (before, after) if part)
        return f"{self.tensor} dimension {self.dim} ({where} its {self.extent})"


def padded_reads(workload: Workload) -> tuple[PaddedRead, ...]:
    """Return every dimension of a tensor that is read out of bounds, in order of the stages."""
    found: dict[tuple[str, int], PaddedRead] = {}
    for stage in workload.stages:
        axes = {a.name: Interval(0, a.extent - 1) for a in stage.all_axes}
        for load in _zero_outside(stage.body, is_padded=False):
            shape = workload.tensors[load.tensor].shape
            for dim, (index, extent) in enumerate(zip(load.index, shape, strict=True)):
                reach = interval(index, axes)
                if reach.lo >= 0 and reach.hi < extent:
                    continue
                known = found.get((load.tensor, dim))
                first = reach.lo if known is None else min(known.first, reach.lo)
                last = reach.hi if known is None else max(known.last, reach.hi)
                found[load.tensor, dim] = PaddedRead(load.tensor, dim, extent, first, last)
    return tuple(found.values())


def _zero_outside(node: Scalar, *, is_padded: bool) -> Iterator[Load]:
    """Yield the loads under a select on index conditions whose other branch is zero. `is_padded`
    states whether `node` is under such a select."""
    match node:
        case Load():
            if is_padded:
                yield node
        case Select(All(), on_true, on_false):
            is_zero = isinstance(on_false, Const) and on_false.value == 0
            yield from _zero_outside(on_true, is_padded=is_padded or is_zero)
            yield from _zero_outside(on_false, is_padded=is_padded)
        case _:
            for child in children(node):
                yield from _zero_outside(child, is_padded=is_padded)
