"""Workload: one computation, in a normal form whose key is the same whoever wrote it.

A workload is a list of input tensors and a list of stages. A stage computes one tensor: every
element by one scalar expression, or as the reduction of one over further axes. Stages may read
inputs and earlier stages. Extents are >= 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

from ..algebra.scalar import Reducer, Scalar, loads
from ..dtypes import DType
from ..record import canonical_bytes

if TYPE_CHECKING:
    from ..frontend.expr_core import TensorExpr


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
    people and is not part of the identity. `declared_flops` and `declared_min_bytes` are the
    operator library's counts where they follow a convention; None means "count the expression".
    `allowed_error` permits rewrites (`schedules.rewrites`) with a proven error of at most this: of
    an element of a float sum of products a*b, relative to max|a| times the largest sum of |b| of
    an element, rounding included. None, the default, permits none.

    Build one with `schedules.frontend.expr` or `schedules.frontend.notation`; `normalised()` gives
    the form with canonical names, in which two spellings of one computation are equal.
    """

    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]
    name: str = ""
    declared_flops: int | None = None
    declared_min_bytes: int | None = None
    allowed_error: float | None = None

    @staticmethod
    def of(
        *outputs: TensorExpr, inputs: Sequence[TensorExpr] | None = None, name: str = ""
    ) -> Workload:
        """The workload that computes `outputs`, tensors made by `schedules.frontend.expr.compute`.

        `inputs` fixes the argument order and must name every placeholder read; without it they
        are taken in order of first use. WorkloadError says what is not valid.
        """
        from ..frontend.expr import build_workload

        return build_workload(outputs, inputs, name)

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
    def constants(self) -> tuple[Tensor, ...]:
        """The inputs whose values do not change between calls."""
        return tuple(tensor for tensor in self.inputs if tensor.constant)

    @property
    def traffic_bytes(self) -> int:
        """Compulsory traffic in bytes: every input and output once."""
        return sum(t.bytes for t in self.arguments)

    @property
    def min_bytes(self) -> int:
        """The published figure: `traffic_bytes` unless the operator's convention says otherwise."""
        declared = self.declared_min_bytes
        return self.traffic_bytes if declared is None else declared

    @cached_property
    def flops(self) -> int:
        """Arithmetic operations of one call: declared, or counted as `flops.py` says."""
        from .flops import counted_flops

        return counted_flops(self) if self.declared_flops is None else self.declared_flops

    def normalised(self) -> Workload:
        """The same computation with canonical names and order; equal for equal computations.

        Inputs are i0, i1, ... in argument order, stages s0, s1, ..., axes d0, ... and r0, ...;
        names and declared counts are gone. `normalise.py` says how the order is found.
        """
        return self._normalised

    @cached_property
    def _normalised(self) -> Workload:
        from .normalise import normalised

        form = normalised(self)
        vars(form)["_normalised"] = form  # its own: to find that out takes as long again
        return form

    @cached_property
    def canonical_bytes(self) -> bytes:
        """The one byte string of this computation: canonical JSON of the normal form."""
        return canonical_bytes(self.normalised().to_json())

    @cached_property
    def key(self) -> str:
        """sha256 of `canonical_bytes`, in hex: the same for every spelling of one computation."""
        return hashlib.sha256(self.canonical_bytes).hexdigest()

    def named(self, name: str) -> Workload:
        """The same computation, called `name`."""
        return replace(self, name=name)

    def allowing(self, error: float | None) -> Workload:
        """The same computation with rewrites allowed up to this error, see `allowed_error`;
        another workload with another key. WorkloadError unless it is between 0 and 1."""
        from .checks import check_allowed_error

        check_allowed_error(error)
        return replace(self, allowed_error=error)

    def to_json(self) -> dict[str, Any]:
        """The document `from_json` reads; format in `docs/workload.md`."""
        from .document import to_json

        return to_json(self)

    @staticmethod
    def from_json(document: object) -> Workload:
        """The workload of a parsed JSON document; WorkloadError with a pointer if it is not one."""
        from .document_reader import from_json

        return from_json(document)

    def consumers(self, name: str) -> tuple[Stage, ...]:
        """Stages that read tensor `name`."""
        return tuple(s for s in self.stages if any(ld.tensor == name for ld in loads(s.body)))
