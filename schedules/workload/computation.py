"""A computation as plain data; `workload.py` adds a normal form, a key and a JSON document.

The modules that validate, count, normalise or serialise a computation depend on this class, not on
`Workload`, which uses them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TypeVar

from ..algebra.scalar import loads, vars_of
from ..errors import WorkloadError
from .tensors import Stage, Tensor

C = TypeVar("C", bound="Computation")
"""The class of a function's argument and result."""


@dataclass(frozen=True)
class Computation:
    """A computation: inputs in argument order, and stages in topological order."""

    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    """The names of the stages whose tensors are returned, in argument order."""
    name: str = ""
    """A label for users. It is not part of the key."""
    declared_flops: int | None = None
    """The number of operations by the convention of the operator library. If None, the operations
    of the expression are counted."""
    declared_min_bytes: int | None = None
    """The number of bytes by the convention of the operator library, or None for
    `traffic_bytes`."""
    allowed_error: float | None = None
    """Rewrites (`tilewright.schedules.rewrites`) need a proven error of at most this value. None
    permits no rewrite. The error of an element of a float sum of products a*b includes rounding. It
    is relative to max|a| times the largest sum of |b| over one element."""

    def stage(self, name: str) -> Stage:
        """Return the stage that computes tensor `name`. Raise KeyError if no stage does."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(name)

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every tensor by name: inputs first, then stages in order."""
        return {t.name: t for t in (*self.inputs, *(s.tensor for s in self.stages))}

    @property
    def output_tensors(self) -> tuple[Tensor, ...]:
        return tuple(self.tensors[name] for name in self.outputs)

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        """Tensors of a kernel call in ABI order: inputs, then outputs."""
        return (*self.inputs, *self.output_tensors)

    @property
    def constants(self) -> tuple[Tensor, ...]:
        """The inputs whose values do not change between calls."""
        return tuple(tensor for tensor in self.inputs if tensor.constant)

    @property
    def traffic_bytes(self) -> int:
        """Compulsory traffic in bytes. Every input and output is transferred once.

        Of an input that is read only at indices that are data, as many elements are transferred as
        there are reads, at most all: no element is selected twice.
        """
        selected = self.most_read
        whole = {
            read.tensor
            for stage in self.stages
            for read in loads(stage.body)
            if not any(i.has_data for i in read.index)
        }
        return sum(
            t.bytes
            if t.name in whole or t.name not in selected
            else min(t.bytes, selected[t.name] * t.dtype.bytes)
            for t in self.arguments
        )

    @property
    def most_read(self) -> dict[str, int]:
        """The most elements that a call can read of each tensor that stages read: one for each
        value of the variables of each read."""
        found: dict[str, int] = {}
        for stage in self.stages:
            extents = {axis.name: axis.extent for axis in stage.all_axes}
            for read in dict.fromkeys(loads(stage.body)):
                points = prod(extents[name] for name in vars_of(read))
                found[read.tensor] = found.get(read.tensor, 0) + points
        return found

    @property
    def min_bytes(self) -> int:
        """The published number of bytes: the declared count of the operator, or `traffic_bytes`."""
        declared = self.declared_min_bytes
        return self.traffic_bytes if declared is None else declared

    def consumers(self, name: str) -> tuple[Stage, ...]:
        """Return the stages that read tensor `name`."""
        return tuple(s for s in self.stages if any(ld.tensor == name for ld in loads(s.body)))


def with_constants(computation: C, names: Iterable[str], source: str = "constant") -> C:
    """Return `computation` with the inputs `names` (case-insensitive) marked constant, too.

    Raise WorkloadError if one of `names` is not an input; the message begins with `source`.
    """
    wanted = {name.casefold(): name for name in names}
    inputs = {t.name.casefold() for t in computation.inputs}
    for folded in sorted(wanted.keys() - inputs):
        raise WorkloadError(
            f"{source}={wanted[folded][:40]}: the inputs are"
            f" {', '.join(t.name for t in computation.inputs)}",
            code="unknown_tensor",
        )
    marked = (
        replace(t, constant=t.constant or t.name.casefold() in wanted) for t in computation.inputs
    )
    return replace(computation, inputs=tuple(marked))
