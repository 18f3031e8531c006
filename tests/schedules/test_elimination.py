"""What elimination proves is true, and it proves what nests of split and fused loops need."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.schedules.affine_cases import build, trees
from tilewright.schedules.algebra.affine import Interval, floor_div, modulo, var
from tilewright.schedules.algebra.comparisons import Cond, at_least, equal, holds, less
from tilewright.schedules.algebra.elimination import exclude_each_other

I, J, K = var("i"), var("j"), var("k")
RANGES = {"i": Interval(0, 6), "j": Interval(0, 14), "k": Interval(0, 40)}


@pytest.mark.parametrize(
    "conds",
    [
        (at_least(I, 7),),
        (at_least(floor_div(K, 8), 6),),
        (at_least(modulo(K, 5), 5),),
        # 7*j + i <= 98 keeps its quotient by 33 below 3.
        (less(I + 7 * J, 99), at_least(floor_div(I + 7 * J, 33), 3)),
        # A loop that was solved: what is left of `d - 4*i + 25` is a multiple of 32.
        (
            equal(modulo(K + 28 * I + 25, 32), 0),
            at_least(K, 4 * I + 7),
            less(I + 8 * floor_div(K - 4 * I + 25, 32), 8),
        ),
        # Quotient and remainder of one sum, put together.
        (less(4 * floor_div(I + 7 * J, 4) + modulo(I + 3 * J, 4), I + 7 * J),),
        (equal(2 * I, 2 * J + 1),),
    ],
)
def test_what_excludes_each_other_is_found(conds: tuple[Cond, ...]) -> None:
    assert exclude_each_other(conds, RANGES)
    assert not exclude_each_other(conds[:-1], RANGES)


conditions = st.lists(
    st.builds(
        lambda index, strict: at_least(index, 0) if strict else equal(index, 0),
        trees().map(build),
        st.booleans(),
    ),
    max_size=3,
)


@settings(max_examples=150)
@given(conditions)
def test_what_is_found_is_true(conds: list[Cond]) -> None:
    ranges = dict.fromkeys("abc", Interval(0, 4))
    if exclude_each_other(conds, ranges):
        for values in product(range(5), repeat=3):
            env = dict(zip("abc", values, strict=True))
            assert not all(holds(cond, env) for cond in conds)
