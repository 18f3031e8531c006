"""`python -m benchmarks.prior count`: which numbers of the source are counted as hand-set."""

from __future__ import annotations

from benchmarks.prior.counting import numbers_of

SOURCE = '''
SIZE = 16
"""Measured."""
PAGE = 4096
"""Bytes. Published: the architecture's manual."""
FOLDS = 5
"""Parts. Published
default: the handbook."""
FIRST, SECOND, THIRD = 0, 1, 2
ROWS, COLUMNS = 8, 2
LAYOUT_VERSION = 3


class Settings:
    depth: int = 4
    once: int = 1


def used(values, steps=3, once=1):
    half, twice, first = values / 2, 2 * values, values[:3]
    rate = 1e9 * twice / (values.bits // 8)
    wide = values * 8
    return wide + max(half, 1e-6) * 0.75 + values.reshape(-1, 5) + rate
'''


def test_each_number_is_of_one_kind() -> None:
    found: dict[str, list[str]] = {}
    for constant in numbers_of(SOURCE, "source.py"):
        found.setdefault(constant.kind, []).append(constant.name or constant.text)
    assert found == {
        "chosen": ["SIZE", "ROWS", "COLUMNS", "depth", "steps", "wide = values * 8",
                   "return wide + max(half, 1e-6) * 0.75 + values.reshape(-1, 5) + rate"],
        "fact": ["PAGE"],
        "default": ["FOLDS"],
        "version": ["LAYOUT_VERSION"],
        "place": ["FIRST, SECOND, THIRD",
                  "half, twice, first = values / 2, 2 * values, values[:3]",
                  "return wide + max(half, 1e-6) * 0.75 + values.reshape(-1, 5) + rate"],
        "unit": ["rate = 1e9 * twice / (values.bits // 8)"],
        "floor": ["return wide + max(half, 1e-6) * 0.75 + values.reshape(-1, 5) + rate"],
    }  # fmt: skip
