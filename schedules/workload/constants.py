"""Marking inputs constant: their values do not change between calls, so they may be packed once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..errors import WorkloadError
from .computation import C


def with_constants(computation: C, names: Iterable[str], asked: str = "constant") -> C:
    """`computation` with the inputs `names` (case-insensitive) marked constant, besides those
    marked already.

    WorkloadError names the inputs there are; `asked` stands before the name that is none of them.
    """
    wanted = {name.casefold(): name for name in names}
    inputs = {t.name.casefold() for t in computation.inputs}
    for folded in sorted(wanted.keys() - inputs):
        raise WorkloadError(
            f"{asked}={wanted[folded][:40]}: the inputs are"
            f" {', '.join(t.name for t in computation.inputs)}",
            code="unknown_tensor",
        )
    marked = (
        replace(t, constant=t.constant or t.name.casefold() in wanted) for t in computation.inputs
    )
    return replace(computation, inputs=tuple(marked))
