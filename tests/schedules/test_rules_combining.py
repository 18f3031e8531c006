"""Which combinations of the sketches of a program's stages are searched."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

from tilewright.schedules.sketches.rules import Cover, likeliest


def test_the_second_choice_of_any_stage_comes_before_the_third_of_another() -> None:
    way: list[Any] = [["a0", "a1"], ["b0"], ["c0", "c1", "c2"]]
    found: list[Any] = list(likeliest([way]))
    assert found[:3] == [("a0", "b0", "c0"), ("a0", "b0", "c1"), ("a1", "b0", "c0")]
    assert sorted(found) == sorted(product(*way))


def test_every_cover_has_its_likeliest_first() -> None:
    ways: list[Any] = [[["a0", "a1", "a2"]], [["b0"], ["c0", "c1"]]]
    found: list[Any] = list(likeliest(ways))
    assert found[:2] == [("a0",), ("b0", "c0")]
    assert len(found) == 5


def test_a_stage_without_a_sketch_leaves_no_combination() -> None:
    assert list(likeliest(cast("list[Cover]", [[("a0",), ()]]))) == []
