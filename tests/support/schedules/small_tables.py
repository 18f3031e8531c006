"""Random reads of small tables at data: the table, the position of the data in its index, and what
the other dimensions are indexed by."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tilewright.schedules.frontend.expr import cast, clamp, compute, placeholder, wrap
from tilewright.schedules.frontend.expr_core import Expr, Index
from tilewright.schedules.workload.workload import Workload

Way = tuple[Callable[[Index], Index], Callable[[int], int]]
"""An index of a loop, and the extent of its dimension for so many iterations."""

ALONG: tuple[Way, ...] = (
    (lambda x: x, lambda n: n),
    (lambda x: x + 3, lambda n: n + 4),
    (lambda x: x * 2, lambda n: 2 * n),
    (lambda x: x // 2 + 1, lambda n: n // 2 + 2),
    (lambda x: x // 2 + 2 * (x % 2), lambda n: n // 2 + 3),
    (lambda x: (x + 6) // 4, lambda n: n // 4 + 3),
    (lambda x: x // 3, lambda n: n // 3 + 1),
    (lambda x: x // 8, lambda n: n // 8 + 1),
    (lambda x: x % 4, lambda n: 4),
)

ROWS, COLUMNS = (1, 2, 3, 5), (1, 7, 16, 33, 48, 61)
ENTRIES = (1, 2, 3, 5, 8, 12, 16, 17, 40, 64, 70)


def table_read(rng: random.Random) -> Workload:
    """Draw a sum of two reads of one table, whose data may differ by one."""
    rows, columns = rng.choice(ROWS), rng.choice(COLUMNS)
    entries, dtype = rng.choice(ENTRIES), rng.choice(("f32", "f32", "i32", "f64", "u8"))
    ways = [(0, rng.choice(ALONG)), (1, rng.choice(ALONG))][rng.choice((0, 0, 1, 2)) :]
    place = rng.randint(0, len(ways))
    shape = [way[1]((rows, columns)[axis]) for axis, way in ways]
    shape.insert(place, entries)
    table = placeholder("T", tuple(shape), dtype)
    numbers = placeholder("I", (rows, columns), rng.choice(("i32", "i32", "i64")))
    policy = rng.choice((clamp, clamp, wrap, lambda x: x))

    def read(y: Index, x: Index, more: int) -> Expr:
        index: list[Any] = [way[0]((y, x)[axis]) for axis, way in ways]
        index.insert(place, policy(numbers[y, x] + more))
        found: Expr = table[tuple(index)]
        return cast(found, "i32") if dtype == "u8" else found

    out = compute("Y", (rows, columns), lambda y, x: read(y, x, 0) + read(y, x, 1) * 2)
    return Workload.of(out, inputs=[table, numbers])
