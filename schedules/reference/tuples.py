"""Reductions of tuples in the reference: trees of combinations, evaluated with NumPy level by
level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from ..algebra.affine import var
from ..algebra.scalar import Load, Scalar, rewrite
from ..algebra.tuples import LEFT, RIGHT
from ..workload.tensors import TupleReduction
from .math import Array
from .reads import IterationBox

Part: TypeAlias = tuple[Array, Array | None]
"""The values of a component, and their errors. None means zero."""
Parts: TypeAlias = Sequence[Part]
"""The components of tuples, each with its errors, as arrays of one shape."""
Combine: TypeAlias = Callable[[Parts, Parts], list[Part]]

_POINT = "point"


def over_points(kind: TupleReduction) -> tuple[Scalar, ...]:
    """Return the combination with the point of `point_box` as the index of each component."""

    def leaf(node: Scalar) -> Scalar | None:
        return Load(node.tensor, (var(_POINT),), node.dtype) if isinstance(node, Load) else None

    return tuple(rewrite(node, leaf) for node in kind.combine)


def point_box(points: int) -> IterationBox:
    return IterationBox((_POINT,), (0,), (points,))


def sides(left: Parts, right: Parts) -> dict[str, Part]:
    """Return the components of both tuples by name, as flat arrays."""
    found: dict[str, Part] = {}
    for side, parts in ((LEFT, left), (RIGHT, right)):
        for n, (values, errors) in enumerate(parts):
            flat = None if errors is None else np.ascontiguousarray(errors).reshape(-1)
            found[f"{side}{n}"] = np.ascontiguousarray(values).reshape(-1), flat
    return found


def shaped(values: Array, shape: tuple[int, ...]) -> Array:
    """Return flat `values`, or one value for all points, as an array of `shape`."""
    if values.size == 1:
        return np.broadcast_to(values.reshape(()), shape)
    return values.reshape(shape)


def folded(parts: Parts, combine: Combine) -> list[Part]:
    """Return the combination of the tuples along the last dimension, in ascending order."""
    while (count := parts[0][0].shape[-1]) > 1:
        pairs = count // 2
        new = combine(_part(parts, 0, 2 * pairs, 2), _part(parts, 1, 2 * pairs, 2))
        parts = _joined(new, _part(parts, count - 1, count)) if count % 2 else new
    return [_at_first(part) for part in parts]


def folded_otherwise(parts: Parts, combine: Combine, *, commutative: bool) -> list[Part]:
    """Return `folded`, grouped otherwise: the first tuple is combined last, so that all others have
    another neighbour. If `commutative`, the order is reversed, too."""
    count = parts[0][0].shape[-1]
    if commutative:
        parts = _part(parts, None, None, -1)
    if count < 3:
        return folded(parts, combine)
    first = [_at_first(part) for part in _part(parts, 0, 1)]
    return combine(first, folded(_part(parts, 1, count), combine))


def _part(parts: Parts, start: int | None, stop: int | None, step: int = 1) -> list[Part]:
    along = slice(start, stop, step)
    return [(v[..., along], None if e is None else e[..., along]) for v, e in parts]


def _at_first(part: Part) -> Part:
    values, errors = part
    return values[..., 0], None if errors is None else errors[..., 0]


def _joined(parts: Parts, more: Parts) -> list[Part]:
    found: list[Part] = []
    for (values, errors), (others, other_errors) in zip(parts, more, strict=True):
        both = None
        if errors is not None or other_errors is not None:
            pair = (
                np.broadcast_to(0.0 if e is None else e, v.shape)
                for v, e in ((values, errors), (others, other_errors))
            )
            both = np.concatenate([*pair], axis=-1)
        found.append((np.concatenate([values, others], axis=-1), both))
    return found
