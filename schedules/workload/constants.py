"""Marking inputs constant: their values do not change between calls, so they may be packed once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..errors import WorkloadError
from .workload import Workload


def with_constants(workload: Workload, names: Iterable[str], asked: str = "constant") -> Workload:
    """`workload` with the inputs `names` (in any case) marked as well.

    WorkloadError names the inputs there are; `asked` stands before the name that is none of them.
    """
    wanted = {name.casefold(): name for name in names}
    inputs = {t.name.casefold() for t in workload.inputs}
    for folded in sorted(wanted.keys() - inputs):
        raise WorkloadError(
            f"{asked}={wanted[folded][:40]}: the inputs are"
            f" {', '.join(t.name for t in workload.inputs)}",
            code="unknown_tensor",
        )
    marked = (
        replace(t, constant=t.constant or t.name.casefold() in wanted) for t in workload.inputs
    )
    return replace(workload, inputs=tuple(marked))
