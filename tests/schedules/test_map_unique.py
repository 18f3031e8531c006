"""Functions of numbers that are called once per distinct setting."""

from __future__ import annotations

import numpy as np

from tilewright.schedules.arrays import map_unique


def test_each_distinct_row_is_computed_once() -> None:
    seen: list[tuple[int, ...]] = []

    def count(a: int, b: int) -> tuple[float, ...]:
        seen.append((a, b))
        return a + b, a * b

    sums, products = map_unique(count, np.array([1, 2, 1]), 3)
    assert sums.tolist() == [4, 5, 4]
    assert products.tolist() == [3, 6, 3]
    assert sorted(seen) == [(1, 3), (2, 3)]


def test_scalars_are_one_setting() -> None:
    """The unrolled taps of a pooling have the same number in all settings."""
    (sums,) = map_unique(lambda a, b: (a + b,), 2, 3)
    assert sums.tolist() == [5]
