"""Vectors that short and ragged ranges take."""

from __future__ import annotations

from math import ceil, log2


def vectors_along(extent: int, lanes: int) -> int:
    """Vectors that cover a range: the last one is filled in part."""
    return -(-extent // lanes)


def ops_of_a_lane_sum(lanes: int) -> float:
    """Instructions that add up the lanes of one vector: halves are moved and added."""
    return 2.0 * ceil(log2(max(lanes, 2)))
