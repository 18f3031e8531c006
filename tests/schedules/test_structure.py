"""Workloads of one structure differ in their sizes only, and the distance measures the sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.schedules.spelling import parse_operator
from tilewright.schedules.workload.structure import distance, structure_of

SIZES = st.integers(2, 64)
OTHERS = (
    "matmul_nt:M=64,N=64,K=64",
    "batch_matmul:B=2,M=64,N=64,K=64",
    "softmax_mn:M=64,N=64",
    "conv2d_nhwc:N=1,H=28,W=28,CI=32,CO=32,K=3,pad=1",
)


def matmul(m: int, n: int, k: int) -> str:
    return f"matmul:M={m},N={n},K={k}"


@given(SIZES, SIZES, SIZES, SIZES, SIZES, SIZES)
def test_matrix_products_of_any_size_have_one_structure(
    m: int, n: int, k: int, m2: int, n2: int, k2: int
) -> None:
    one = structure_of(parse_operator(matmul(m, n, k)))
    two = structure_of(parse_operator(matmul(m2, n2, k2)))
    assert one.key == two.key
    assert distance(one, two) == pytest.approx(distance(two, one))
    assert (distance(one, two) == 0) == ((m, n, k) == (m2, n2, k2))


def test_the_distance_is_in_log2_units_of_the_extents() -> None:
    small, large = (structure_of(parse_operator(matmul(32, 32, size))) for size in (32, 128))
    assert distance(small, large) == pytest.approx(2.0)


def test_a_stride_is_a_difference_of_size() -> None:
    text = "conv2d_nhwc:N=1,H=28,W=28,CI=32,CO=32,K=3,pad=1,stride={}"
    one, two = (structure_of(parse_operator(text.format(stride))) for stride in (1, 2))
    assert one.key == two.key
    assert distance(one, two) > 1.0


@pytest.mark.parametrize("other", OTHERS)
def test_other_computations_have_another_structure(other: str) -> None:
    one, two = structure_of(parse_operator(matmul(64, 64, 64))), structure_of(parse_operator(other))
    assert one.key != two.key
    with pytest.raises(ValueError, match="differ in structure"):
        distance(one, two)


def test_the_spelling_does_not_matter() -> None:
    one = parse_operator(matmul(64, 32, 16))
    assert structure_of(one) == structure_of(one.normalised().named("renamed"))
