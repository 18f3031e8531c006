"""Points at which conditions hold, counted along one axis as by enumeration."""

from __future__ import annotations

import random
from math import prod

import pytest

from tilewright.schedules.algebra import counting
from tilewright.schedules.algebra.affine import Affine, affine, modulo, var
from tilewright.schedules.algebra.comparisons import Cond, Eq0, Ge0
from tilewright.schedules.algebra.counting import points_where


def linear(rng: random.Random, names: str) -> Affine:
    terms = (var(name) * rng.randint(-3, 3) for name in names)
    return sum(terms, affine(rng.randint(-9, 9)))


def drawn(rng: random.Random) -> tuple[dict[str, int], tuple[Cond, ...]]:
    names = "abc"[: rng.randint(1, 3)]
    conds: list[Cond] = [Ge0(linear(rng, names)) for _ in range(rng.randint(0, 2))]
    if rng.random() < 0.6:
        conds.append(Eq0(modulo(linear(rng, names), rng.randint(2, 5))))
    if rng.random() < 0.3:
        conds.append(Eq0(linear(rng, names)))
    return {name: rng.randint(1, 9) for name in names}, tuple(conds)


def test_counts_along_an_axis_are_those_of_an_enumeration(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0
    for seed in range(600):
        extents, conds = drawn(random.Random(seed))
        right = points_where(extents, conds)
        with monkeypatch.context() as patch:
            patch.setattr(counting, "MOST_POINTS", prod(extents.values()) // max(extents.values()))
            found = points_where(extents, conds)
        assert found >= right
        counted += found == right
    assert counted > 500


def test_many_points_are_counted_with_a_congruence() -> None:
    """An inverse STFT: 260 frames of 1024 samples, of which 257 exist, at every 256th position."""
    position = var("y") - var("r")
    conds = (Eq0(modulo(position, 256)), Ge0(position), Ge0(256 * 256 - position))
    assert points_where({"y": 66560, "r": 1024, "c": 3}, conds) == 257 * 1024 * 3


def test_what_cannot_be_counted_is_counted_in_full() -> None:
    position = var("y") - var("r")
    two = (Eq0(modulo(position, 3)), Eq0(modulo(position, 5)))
    assert points_where({"y": 66560, "r": 1024}, two) == 66560 * 1024
    shared = (Ge0(var("a") + var("b") + var("c") - 9),)
    assert points_where({"a": 4096, "b": 4096, "c": 4096}, shared) == 4096**3
