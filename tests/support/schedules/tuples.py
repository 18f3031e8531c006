"""Reductions of tuples that several tests examine."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from tilewright.schedules import (
    Workload,
    compute,
    exp,
    maximum,
    placeholder,
    reduce_axis,
    reduce_tuple,
    select,
)


def first_greatest(a: Any, b: Any) -> tuple[Any, ...]:
    return maximum(a[0], b[0]), select(b[0] > a[0], b[1], a[1])


def composed(a: Any, b: Any) -> tuple[Any, ...]:
    """Two affine maps one after the other: no two of them may be exchanged."""
    return a[0] * b[0], a[1] * b[0] + b[1]


def moments(a: Any, b: Any) -> tuple[Any, ...]:
    count, apart = a[0] + b[0], b[1] - a[1]
    share = b[0] / maximum(count, 1.0)
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * (a[0] * share)


def rescaled(a: Any, b: Any) -> tuple[Any, ...]:
    most = maximum(a[0], b[0])
    return most, a[1] * exp(a[0] - most) + b[1] * exp(b[0] - most)


def of_rows(
    values: Callable[[Any, Any], tuple[Any, ...]],
    identity: tuple[Any, ...],
    combine: Callable[..., tuple[Any, ...]],
    *positions: int,
    dtype: str = "f32",
    shape: tuple[int, int] = (5, 37),
    commutative: bool = False,
) -> Workload:
    """The components `positions` of a reduction of tuples along the rows of a matrix X."""
    x, k = placeholder("X", shape, dtype), reduce_axis(shape[1], "k")

    def component(position: int) -> Any:
        def element(i: Any) -> Any:
            given = values(x[i, k], k)
            found = reduce_tuple(given, identity, combine, axis=k, commutative=commutative)
            return found[position]

        return compute(f"T{position}", shape[:1], element)

    return Workload.of(*map(component, positions), inputs=[x])


def with_position(x: Any, k: Any) -> tuple[Any, ...]:
    return x, k


ARGMAX = of_rows(with_position, (-inf, 0), first_greatest, 1)
COMPOSED = of_rows(lambda x, k: (x, k + 1), (1, 0), composed, 1, dtype="i32")
