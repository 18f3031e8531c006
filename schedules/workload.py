"""Workload: one computation, in a normal form whose key is the same whoever wrote it.

A workload is a list of input tensors and a list of stages. A stage computes one tensor: every
element by one scalar expression, or as the reduction of one over further axes. Stages may read
inputs and earlier stages. Extents are >= 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from .dtypes import DType
from .scalar import Reducer, Scalar, loads


@dataclass(frozen=True, slots=True)
class Axis:
    """A named loop variable over `0..extent-1`."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A dense row-major array. `constant` says its values do not change between calls."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    constant: bool = False

    @property
    def elements(self) -> int:
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.bytes


@dataclass(frozen=True, slots=True)
class Stage:
    """`tensor[axes] = body`, or `= reducer over reduce_axes of body`.

    `tensor.shape` is the extents of `axes`, in order. The body's variables are the names in
    `axes` and `reduce_axes`.
    """

    tensor: Tensor
    axes: tuple[Axis, ...]
    body: Scalar
    reducer: Reducer | None = None
    reduce_axes: tuple[Axis, ...] = ()

    @property
    def name(self) -> str:
        return self.tensor.name


@dataclass(frozen=True)
class Workload:
    """Inputs in argument order, stages in an order in which each reads only what is before it.

    `outputs` names the stages whose tensors the caller gets, in argument order. `name` is for
    people and is not part of the identity. `declared_flops` is the operator library's count
    where it follows a convention; None means "count the expression".

    Build one with `schedules.expr` or `schedules.notation`; `normalised()` gives the form with
    canonical names, in which two spellings of one computation are equal.
    """

    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    name: str = ""
    declared_flops: int | None = None

    def stage(self, name: str) -> Stage:
        """The stage that computes tensor `name`; KeyError if there is none."""
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
    def min_bytes(self) -> int:
        """Compulsory traffic in bytes: every input and output once."""
        return sum(t.bytes for t in self.arguments)

    def consumers(self, name: str) -> tuple[Stage, ...]:
        """Stages that read tensor `name`."""
        return tuple(s for s in self.stages if any(ld.tensor == name for ld in loads(s.body)))
