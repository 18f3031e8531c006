"""Long sums as balanced trees, whose depth is the logarithm of the number of terms.

The tree of a chain `a + b - c + ...` has one level per term. A chain deeper than
`limits.MAX_BODY_DEPTH` becomes a balanced tree: additions may be regrouped (docs/math.md). Shorter
chains keep their tree, so their workload keys do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def balanced_sum(
    terms: Sequence[tuple[int, T]], add: Callable[[T, T], T], subtract: Callable[[T, T], T]
) -> T:
    """Return the sum of `terms` as a balanced tree.

    A term is a pair of a sign (1 or -1) and a value. The first sign must be 1: terms are
    subtracted, never negated.
    """
    if len(terms) == 1:
        return terms[0][1]
    middle = len(terms) // 2
    sign = terms[middle][0]
    left = balanced_sum(terms[:middle], add, subtract)
    right = balanced_sum([(sign * s, t) for s, t in terms[middle:]], add, subtract)
    return add(left, right) if sign > 0 else subtract(left, right)
