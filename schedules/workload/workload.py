"""Workload: a computation with a normal form and a key that are equal for all its notations.

A workload is a list of input tensors and a list of stages. A stage computes one tensor: each
element is the value of a scalar expression, or the reduction of that expression over further axes.
Stages may read inputs and earlier stages. Extents are >= 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

from ..canonical import canonical_bytes
from .assemble import Output, TensorSource, assembled
from .checks import check_allowed_error
from .computation import Computation
from .document import to_json
from .flops import published_flops
from .normalise import normalised
from .stored import is_stored_form, stored_form


@dataclass(frozen=True)
class Workload(Computation):
    """A computation with a normal form, a key and a JSON document.

    Build a workload with `tilewright.schedules.frontend.expr` or
    `tilewright.schedules.frontend.notation`.
    """

    @classmethod
    def of(
        cls, *outputs: Output, inputs: Sequence[TensorSource] | None = None, name: str = ""
    ) -> Self:
        """Return the workload that computes `outputs`, results of `compute` or of array operations.

        `inputs` are all placeholders that are read, in argument order. By default, they are in
        order of first use. Raise WorkloadError if the computation is not valid.
        """
        return cls._on(assembled(outputs, inputs, name))

    @classmethod
    def _on(cls, found: Computation) -> Self:
        return cls(**{field.name: getattr(found, field.name) for field in fields(found)})

    @cached_property
    def flops(self) -> int:
        """Arithmetic operations of one call, declared or counted by the rule of `flops.py`."""
        return published_flops(self)

    def normalised(self) -> Self:
        """Return the normal form, which is equal for equal computations.

        Inputs are named i0, i1, ..., stages s0, s1, ..., and axes d0, ... and r0, ... Labels and
        declared counts are removed. `normalise.py` describes the order.
        """
        return self._normalised

    @cached_property
    def _normalised(self) -> Self:
        form = normalised(self)
        vars(form)["_normalised"] = form  # idempotent, so that it is not computed again
        return form

    def stored(self) -> Self:
        """Return the normal form in which this computation is scheduled (`stored.py`): the normal
        form itself, or another one if it has tensors of bools or without dimensions."""
        return self._stored

    @cached_property
    def _stored(self) -> Self:
        form = self.normalised()
        return form if is_stored_form(form) else stored_form(form).normalised()

    @cached_property
    def canonical_bytes(self) -> bytes:
        """The unique byte string of this computation: canonical JSON of the normal form."""
        return canonical_bytes(self.normalised().to_json())

    @cached_property
    def key(self) -> str:
        """SHA-256 of `canonical_bytes` in hex, equal for all notations of the computation."""
        return hashlib.sha256(self.canonical_bytes).hexdigest()

    def named(self, name: str) -> Self:
        return replace(self, name=name)

    def allowing(self, error: float | None) -> Self:
        """Return the computation with `allowed_error` set to `error`, which changes the key. Raise
        WorkloadError if `error` is neither None nor between 0 and 1."""
        check_allowed_error(error)
        return replace(self, allowed_error=error)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON document that `docs/workload.md` describes."""
        return to_json(self)

    @classmethod
    def from_json(cls, document: object) -> Self:
        """Return the workload of a parsed JSON document.

        Raise WorkloadError with a JSON pointer if the document is not valid.
        """
        # Start-up: a query that names an operator does not need the parser.
        from .document_reader import read_document

        return cls._on(read_document(document))

    @classmethod
    def from_text(cls, text: bytes | str) -> Self:
        """Return the workload of a JSON text. Raise WorkloadError if it is not valid."""
        from .document_reader import read_text  # Start-up: not needed for operators

        return cls._on(read_text(text))
