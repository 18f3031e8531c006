"""Workload: one computation with a normal form and a key that are equal for all its spellings.

A workload is a list of input tensors and a list of stages. A stage computes one tensor: every
element by one scalar expression, or as the reduction of one over further axes. Stages may read
inputs and earlier stages. Extents are >= 1.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

from ..canonical import canonical_bytes
from .assemble import TensorSource, assembled
from .checks import check_allowed_error
from .computation import Computation
from .document import to_json
from .flops import published_flops
from .normalise import normalised


@dataclass(frozen=True)
class Workload(Computation):
    """A computation with an identity: a normal form, a key, and a document.

    Build one with `tilewright.schedules.frontend.expr` or `tilewright.schedules.frontend.notation`;
    `normalised()` gives the form with canonical names, in which two spellings of one computation
    are equal.
    """

    @classmethod
    def of(
        cls, *outputs: TensorSource, inputs: Sequence[TensorSource] | None = None, name: str = ""
    ) -> Self:
        """The workload that computes `outputs`, tensors made by
        `tilewright.schedules.frontend.expr.compute`.

        `inputs` fixes the argument order and must name every placeholder read; without it they
        are taken in order of first use. WorkloadError says what is not valid.
        """
        return cls._on(assembled(outputs, inputs, name))

    @classmethod
    def _on(cls, found: Computation) -> Self:
        return cls(**{field.name: getattr(found, field.name) for field in fields(found)})

    @cached_property
    def flops(self) -> int:
        """Arithmetic operations of one call: declared, or counted as `flops.py` says."""
        return published_flops(self)

    def normalised(self) -> Self:
        """The same computation with canonical names and order; equal for equal computations.

        Inputs are i0, i1, ... in argument order, stages s0, s1, ..., axes d0, ... and r0, ...;
        names and declared counts are gone. `normalise.py` says how the order is found.
        """
        return self._normalised

    @cached_property
    def _normalised(self) -> Self:
        form = normalised(self)
        vars(form)["_normalised"] = form  # idempotent, so that it is not computed again
        return form

    @cached_property
    def canonical_bytes(self) -> bytes:
        """The one byte string of this computation: canonical JSON of the normal form."""
        return canonical_bytes(self.normalised().to_json())

    @cached_property
    def key(self) -> str:
        """sha256 of `canonical_bytes`, in hex: the same for every spelling of one computation."""
        return hashlib.sha256(self.canonical_bytes).hexdigest()

    def named(self, name: str) -> Self:
        """The same computation, called `name`."""
        return replace(self, name=name)

    def allowing(self, error: float | None) -> Self:
        """The same computation with rewrites allowed up to this error, see `allowed_error`;
        another workload with another key. WorkloadError unless it is between 0 and 1."""
        check_allowed_error(error)
        return replace(self, allowed_error=error)

    def to_json(self) -> dict[str, Any]:
        """The document `from_json` reads; format in `docs/workload.md`."""
        return to_json(self)

    @classmethod
    def from_json(cls, document: object) -> Self:
        """The workload of a parsed JSON document; WorkloadError with a pointer if it is not one."""
        # Start-up: a query that names an operator reads no document, and loads no parser of one.
        from .document_reader import read_document

        return cls._on(read_document(document))

    @classmethod
    def from_text(cls, text: bytes | str) -> Self:
        """The workload of a JSON text; WorkloadError says what is wrong and where."""
        from .document_reader import read_text  # Start-up: as in `from_json`

        return cls._on(read_text(text))
