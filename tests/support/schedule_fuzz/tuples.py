"""Random reductions of tuples: positions of extremes, and combinations that are not commutative."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

from tilewright import schedules as tw
from tilewright.schedules.frontend.expr import all_of, any_of, compute_labelled
from tilewright.schedules.frontend.expr_core import Expr, Index
from tilewright.schedules.workload.workload import Workload

Values = tuple[Expr, ...]


@dataclass(frozen=True)
class _Rule:
    """A combination. `values` are its tuple for an element and its position."""

    values: Callable[[Any, Any], tuple[Any, ...]]
    identity: tuple[Any, ...]
    combine: Callable[[Values, Values], tuple[Any, ...]]
    integers: bool = False
    commutative: bool = False


def _first_greatest(a: Values, b: Values) -> tuple[Any, ...]:
    return tw.maximum(a[0], b[0]), tw.select(b[0] > a[0], b[1], a[1])


def _last_least(a: Values, b: Values) -> tuple[Any, ...]:
    return tw.minimum(a[0], b[0]), tw.select(b[0] <= a[0], b[1], a[1])


def _first_nan_or_greatest(a: Values, b: Values) -> tuple[Any, ...]:
    """A NaN is greater than every number, also where the value of a maximum would be open."""
    right = any_of(b[0] > a[0], all_of(tw.ne(b[0], b[0]), tw.eq(a[0], a[0])))
    return tw.select(right, b[0], a[0]), tw.select(right, b[1], a[1])


def _first_or_nan(a: Values, b: Values) -> tuple[Any, ...]:
    """The same in any order: of equals, and of several NaN, the least position."""
    left, right = (tw.ne(x[0], x[0]).value() for x in (a, b))
    equal = (tw.eq(a[0], b[0]).value() | (left & right)) & (b[1] < a[1]).value()
    above = (~left) & ((b[0] > a[0]).value() | right)
    return tw.select(above | equal, b[0], a[0]), tw.select(above | equal, b[1], a[1])


def _composed(a: Values, b: Values) -> tuple[Any, ...]:
    """The affine map that applies first a, then b: no two of them may be exchanged."""
    return a[0] * b[0], a[1] * b[0] + b[1]


def _welford(a: Values, b: Values) -> tuple[Any, ...]:
    count, apart = a[0] + b[0], b[1] - a[1]
    share = b[0] / tw.maximum(count, 1.0)
    return count, a[1] + apart * share, a[2] + b[2] + apart * apart * (a[0] * share)


def _rescaled_sum(a: Values, b: Values) -> tuple[Any, ...]:
    most = tw.maximum(a[0], b[0])
    return most, a[1] * tw.exp(a[0] - most) + b[1] * tw.exp(b[0] - most)


def _swapped(a: Values, b: Values) -> tuple[Any, ...]:
    """Both components need both old ones: the least two, in order."""
    least = tw.minimum(a[0], b[0])
    second = tw.minimum(tw.maximum(a[0], b[0]), tw.minimum(a[1], b[1]))
    return least, tw.minimum(second, tw.maximum(least, tw.minimum(a[1], b[1])))


_LOWEST = -(2**31)
_RULES = (
    _Rule(lambda x, k: (x, k), (-inf, 0), _first_greatest),
    _Rule(lambda x, k: (x, k), (_LOWEST, 0), _first_greatest, integers=True),
    _Rule(lambda x, k: (x, k), (inf, 0), _last_least),
    _Rule(lambda x, k: (x, k), (-inf, 0), _first_nan_or_greatest),
    _Rule(lambda x, k: (x, k + 1), (1, 0), _composed, integers=True),
    _Rule(lambda x, k: (x, x + 1), (1, 0), _composed, integers=True),
    _Rule(lambda x, k: (x, k), (-inf, 2**30), _first_or_nan, commutative=True),
    _Rule(lambda x, k: (x, k), (-inf, 2**30), _first_or_nan, commutative=True),
    _Rule(lambda x, k: (1.0, x, 0.0), (0.0, 0.0, 0.0), _welford, commutative=True),
    _Rule(lambda x, k: (x, 1.0), (-3e38, 0.0), _rescaled_sum, commutative=True),
    _Rule(lambda x, k: (x, inf), (inf, inf), _swapped, commutative=True),
)


def random_tuples(rng: random.Random) -> Workload:
    """One or several components of a reduction of tuples over one or two axes, of a tensor of one
    to four; half of the time with an elementwise stage after it."""
    rule = rng.choice(_RULES)
    dtype = (
        rng.choice(("i32", "i64") if rule.identity[0] != _LOWEST else ("i32",))
        if rule.integers
        else rng.choice(("f32", "f32", "f64"))
    )
    reduced = [rng.choice((1, 2, 3, 7, 17, 33, 65, 130, 700)) for _ in range(rng.choice((1, 1, 2)))]
    spatial = [rng.choice((1, 2, 3, 7, 17, 33)) for _ in range(rng.choice((0, 1, 1, 2)))]
    order = list(range(len(spatial) + len(reduced)))
    rng.shuffle(order)
    shape = [(*spatial, *reduced)[n] for n in order]
    data = tw.placeholder("X", shape, dtype)
    backwards, guarded, doubled = (rng.random() < share for share in (0.2, 0.3, 0.3))
    axes = [tw.reduce_axis(n, f"k{i}") for i, n in enumerate(reduced)]

    def component(number: int) -> Callable[..., Expr]:
        def element(*index: Index) -> Expr:
            every = (*index[: len(spatial)], *axes)
            first, last = axes[0], reduced[0] - 1
            moved = [last - first if backwards and i is first else i for i in every]
            x: Any = data[tuple(moved[n] for n in order)]
            x = x * 2 if doubled else x
            x = tw.select(first >= 1, x, 0) if guarded else x
            position: Any = sum_of(axes)
            if dtype == "i64":
                position = tw.cast(position, "i64")
            values = tuple(
                tw.const(v, dtype) if isinstance(v, float) else v for v in rule.values(x, position)
            )
            over: Any = tuple(axes)
            found = tw.reduce_tuple(
                values, rule.identity, rule.combine, over, commutative=rule.commutative
            )
            return found[number]

        return element

    count = len(rule.identity)
    wanted = rng.sample(range(count), rng.randint(1, count))
    sizes = spatial or [1]
    labelled = tuple((f"i{n}", e) for n, e in enumerate(sizes))
    outputs = [compute_labelled(f"T{n}", labelled, component(n)) for n in wanted]
    if rng.random() < 0.5:
        last = outputs[-1]
        outputs.append(compute_labelled("Y", labelled, lambda *i: last[i] + 1))
        if rng.random() < 0.5:
            outputs.remove(last)
    return Workload.of(*outputs, inputs=[data])


def sum_of(axes: list[Any]) -> Any:
    """The sum of the indices `axes`."""
    total = axes[0]
    for axis in axes[1:]:
        total = total + axis
    return total
