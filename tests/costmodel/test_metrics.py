"""Ranking measures against values worked out by hand, and against each other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.costmodel.metrics import (
    ranks,
    recall_at_k,
    spearman,
)


def test_ranks_share_the_mean_where_values_are_equal() -> None:
    assert ranks([3.0, 1.0, 3.0, 2.0]).tolist() == [2.5, 0.0, 2.5, 1.0]


@pytest.mark.parametrize(
    ("predicted", "measured", "expected"),
    [([1, 2, 3], [2, 4, 9], 1.0), ([3, 2, 1], [2, 4, 9], -1.0), ([1, 3, 2, 4], [1, 2, 3, 4], 0.8)],
)
def test_spearman(predicted: list[float], measured: list[float], expected: float) -> None:
    assert spearman(predicted, measured) == pytest.approx(expected)


def test_recall() -> None:
    predicted, measured = [1, 2, 3, 4, 5, 6], [2.0, 9.0, 1.0, 8.0, 7.0, 6.0]
    assert recall_at_k(predicted, measured, 2) == 0.5


def test_no_answer_rather_than_a_meaningless_one() -> None:
    assert spearman([], []) is None
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert recall_at_k([1, 2, 3], [1, 2, 3], 2) is None


@given(st.lists(st.integers(0, 50), min_size=3, max_size=30), st.randoms(use_true_random=False))
@settings(deadline=None, derandomize=True)
def test_reversing_the_prediction_turns_the_sign(values: list[int], random: object) -> None:
    measured = [float(i * i % 17) for i in range(len(values))]
    forward, backward = spearman(values, measured), spearman([-v for v in values], measured)
    if forward is not None and backward is not None:
        assert forward == pytest.approx(-backward)
        assert -1 - 1e-9 <= forward <= 1 + 1e-9
