"""The structure of a workload: what two workloads of different extents have in common.

Two workloads have the same structure if their normal forms differ only in extents, in the
coefficients and offsets of indices, in the conditions of padding, and in the values of constants:
the layers of one network, or matrix products in the same layout. Their schedules and the errors of
their predictions resemble each other the more, the smaller the `distance` of their sizes is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log2, sqrt
from typing import Any

from ..canonical import canonical_bytes
from .workload import Workload

_TERM = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)")
"""One variable of an affine index, with its coefficient."""

COEFFICIENT_WEIGHT = 1.0
"""Weight of the coefficients of indices relative to extents."""


@dataclass(frozen=True, slots=True)
class Structure:
    """`key`: 64 hex digits, equal for workloads of the same structure. `extents` and
    `coefficients`: the numbers in which they may differ, in a fixed order."""

    key: str
    extents: tuple[int, ...]
    coefficients: tuple[int, ...]


def structure_of(workload: Workload) -> Structure:
    """Return the structure of the workload's normal form."""
    extents: list[int] = []
    coefficients: list[int] = []
    skeleton = _skeleton(workload.normalised().to_json(), extents, coefficients)
    key = hashlib.sha256(canonical_bytes(skeleton)).hexdigest()
    return Structure(key, tuple(extents), tuple(coefficients))


def distance(one: Structure, other: Structure) -> float:
    """Return the distance of two workloads of the same structure: the Euclidean norm of the
    differences of their sizes, in log2 units. Raise ValueError if the structures differ."""
    if one.key != other.key:
        raise ValueError("distance: the workloads differ in structure, not only in their sizes")
    gaps = [*_gaps(one.extents, other.extents)]
    gaps += [COEFFICIENT_WEIGHT * gap for gap in _gaps(one.coefficients, other.coefficients)]
    return sqrt(sum(gap**2 for gap in gaps))


def _gaps(one: Sequence[int], other: Sequence[int]) -> Iterator[float]:
    for a, b in zip(one, other, strict=True):
        yield log2(max(a, 1) / max(b, 1))


def _skeleton(part: Any, extents: list[int], coefficients: list[int]) -> Any:
    """Return `part` of a document without its numbers; append extents and coefficients to the
    lists."""
    if isinstance(part, dict):
        found = {}
        for name in sorted(part):
            value = part[name]
            if name in ("axes", "reduce_axes"):
                extents += [extent for _, extent in value]
                found[name] = [axis for axis, _ in value]
            elif name == "index":
                found[name] = [_variables(index, coefficients) for index in value]
            elif name not in ("shape", "cond", "value", "allowed_error", "declared_flops"):
                found[name] = _skeleton(value, extents, coefficients)
        return found
    if isinstance(part, list):
        return [_skeleton(item, extents, coefficients) for item in part]
    return part


def _variables(index: Any, coefficients: list[int]) -> list[str]:
    """Return the variables of an affine index, and append their coefficients."""
    terms = _TERM.findall(str(index))
    coefficients += [int(factor or 1) for factor, _ in terms]
    return [variable for _, variable in terms]
