"""The affine core: normal forms, what it can prove, and what it refuses."""

from __future__ import annotations

import pytest

from tilewright.schedules.algebra.affine import (
    ZERO,
    Affine,
    Interval,
    Ranges,
    Var,
    affine,
    floor_div,
    fresh,
    modulo,
    simplify,
    var,
)
from tilewright.schedules.algebra.comparisons import at_least, equal, less, prove, tighten

I, J, K = var("i"), var("j"), var("k")
RANGES: Ranges = {"i": Interval(0, 7), "j": Interval(0, 3), "k": Interval(0, 99)}


@pytest.mark.parametrize(
    ("index", "text"),
    [
        (ZERO, "0"),
        (I + 0, "i"),
        (J + I, "i + j"),
        (4 * J + I - 3, "i + 4*j - 3"),
        (-I - J, "-i - j"),
        (I - I, "0"),
        (2 * (I + 3), "2*i + 6"),
        (5 - I, "-i + 5"),
        (floor_div(I + 1, 4), "(i + 1)//4"),
        (-floor_div(I, 4), "-(i//4)"),
        (J - floor_div(I, 4), "j - i//4"),
        (3 * modulo(I, 4), "3*(i%4)"),
        (floor_div(modulo(I, 8), 3), "i%8//3"),
    ],
)
def test_text_of_the_normal_form(index: Affine, text: str) -> None:
    assert str(index) == text


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (floor_div(8 * I + 16, 8), I + 2),
        (floor_div(8 * I + J, 8), I + floor_div(J, 8)),
        (floor_div(4 * I + 2, 8), floor_div(2 * I + 1, 4) + ZERO),
        (floor_div(floor_div(I, 3), 4), floor_div(I, 12)),
        (floor_div(modulo(I, 4), 8), ZERO),
        (floor_div(I, 1), I),
        (modulo(I, 1), ZERO),
        (modulo(8 * I + J, 8), modulo(J, 8)),
        (modulo(2 * I, 8), 2 * modulo(I, 4)),
        (modulo(modulo(I, 12), 4), modulo(I, 4)),
        (modulo(modulo(I, 4), 12), modulo(I, 4)),
        (modulo(-I, 8), modulo(7 * I, 8)),
        (affine(Var("i")), I),
    ],
)
def test_equal_functions_get_one_form(left: Affine, right: Affine) -> None:
    assert left == right
    assert hash(left) == hash(right)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (floor_div(8 * K + I, 8), K),
        (modulo(8 * K + I, 8), I),
        (floor_div(4 * I + J, 4), I),
        (modulo(4 * I + J, 4), J),
        (floor_div(4 * I + J, 8), floor_div(I, 2)),
        (modulo(4 * I + J, 8), 4 * modulo(I, 2) + J),
        (floor_div(I, 8), ZERO),
        (floor_div(I - 8, 8), affine(-1)),
        (modulo(J + 16, 16), J),
        (floor_div(32 * K + 4 * I + J, 32), K),
        (floor_div(I, 4) * 4 + modulo(I, 4), floor_div(I, 4) * 4 + modulo(I, 4)),
    ],
)
def test_simplify_uses_ranges(index: Affine, expected: Affine) -> None:
    assert simplify(index, RANGES) == expected


def test_simplify_puts_in_variables_of_one_value() -> None:
    assert simplify(3 * I + J, {"i": Interval(2, 2), "j": Interval(0, 3)}) == J + 6


def test_a_guard_loses_the_variables_that_cannot_matter() -> None:
    assert tighten(less(8 * K + I, 1000), RANGES) == less(K, 125)
    assert tighten(less(32 * K + 4 * I + J, 96), RANGES) == less(K, 3)
    assert tighten(less(8 * K + I, 1001), RANGES) == less(8 * K + I, 1001)
    assert tighten(at_least(8 * K + I, 8), RANGES) == at_least(K, 1)


@pytest.mark.parametrize(
    ("cond", "expected"),
    [
        (less(I, 8), True),
        (less(I, 7), None),
        (at_least(I, 8), False),
        (less(4 * I + J, 32), True),
        (less(8 * K + I, 800), True),
        (equal(I, 8), False),
        (equal(I, 3), None),
        (equal(I - I, 0), True),
        (less(modulo(K, 8), 8), True),
        (less(floor_div(K, 10), 10), True),
    ],
)
def test_what_can_be_proved(cond: object, expected: bool | None) -> None:
    assert prove(cond, RANGES) is expected  # type: ignore[arg-type]


def test_proofs_need_the_sizes_and_the_alignment() -> None:
    # 8*i_o + i_i < n over the full tiles only.
    assert prove(less(8 * K + I, 997), {**RANGES, "k": Interval(0, 123)}) is True
    assert prove(less(8 * K + I, 997), {**RANGES, "k": Interval(0, 124)}) is None


@pytest.mark.parametrize(
    ("cond", "text"),
    [
        (less(4 * I + J, 30), "4*i + j <= 29"),
        (at_least(I + J, 1), "i + j >= 1"),
        (at_least(I, J), "i >= j"),
        (less(I, J), "j >= i + 1"),
        (equal(I, 0), "i == 0"),
        (equal(I, 2 * J), "i == 2*j"),
    ],
)
def test_text_of_conditions(cond: object, text: str) -> None:
    assert str(cond) == text


def test_linear_and_coefficient() -> None:
    index = 3 * I + floor_div(J, 2)
    assert index.is_linear_in("i")
    assert not index.is_linear_in("j")
    assert (index.coefficient("i"), index.coefficient("j")) == (3, 0)
    assert index.vars() == {"i", "j"}


def test_fresh_names() -> None:
    assert fresh("i", {"j"}) == "i"
    assert fresh("i", {"i", "i1"}) == "i2"


def test_an_interval_is_never_empty() -> None:
    with pytest.raises(ValueError, match=r"an interval needs lo <= hi, got 3\.\.2"):
        Interval(3, 2)


@pytest.mark.parametrize("divisor", [0, -4])
def test_divisors_are_positive(divisor: int) -> None:
    with pytest.raises(ValueError, match=f"division needs a divisor >= 1, got {divisor}"):
        floor_div(I, divisor)
    with pytest.raises(ValueError, match=f"remainder needs a divisor >= 1, got {divisor}"):
        modulo(I, divisor)


@pytest.mark.parametrize("value", [True, 1.5, "i"])
def test_indices_are_integers_or_affine(value: object) -> None:
    with pytest.raises(TypeError, match="an index is an integer or an affine expression, got"):
        affine(value)  # type: ignore[arg-type]


def test_an_index_is_not_multiplied_by_an_index() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        I * J  # type: ignore[operator]
