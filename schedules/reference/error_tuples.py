"""The error bound of reductions of tuples: how far any grouping may be from the balanced tree.

The combination is associative by the word of whoever wrote it, so all groupings in ascending order
give one exact result. What is concluded about computed results:

- If no operation of the combination rounds (`may_round`), a kernel combines its own values exactly,
  in any grouping. Its result is that of the balanced tree for its values, so the error bound of the
  tree, which starts from the errors of the values, holds for every grouping.
- If it may round, a value passes at most K - 1 combinations of K tuples, and in the tree about
  log2(K). The bound of the tree, in which the result of each combination is rounded even if it is
  exact, is enlarged by this ratio, or from `FEW_TERMS` tuples on by the
  probabilistic one of sums: `DEVIATIONS` * sqrt(K) roundings (`error_sums`).
- Two trees that pair different neighbours are computed, one of them without the identity. Where a
  combination that does not round gives two results, it is not associative for the values, for
  example because it ignores NaN on one side, or its identity is none: every result is accepted
  there. Otherwise the bound is at least `MARGIN` times the
  difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2, prod, sqrt

import numpy as np

from ..algebra.tuples import may_round
from ..workload.tensors import TupleReduction
from .error_rounding import as_array, unit_roundoff
from .error_special import Bounded, same
from .error_sums import DEVIATIONS, FEW_TERMS, MARGIN
from .math import Array


def rounded_parts(
    kind: TupleReduction,
    left: Sequence[Bounded],
    right: Sequence[Bounded],
    parts: Sequence[Bounded],
) -> list[Bounded]:
    """Return the components `parts` of combinations of `left` and `right`, with a rounding of the
    size of their operands, also if they are exact in this tree: in another grouping, they may
    round."""
    found: list[Bounded] = []
    for node, a, b, (values, errors) in zip(kind.combine, left, right, parts, strict=True):
        if node.dtype.is_float and may_round(node):
            size = np.maximum(np.maximum(_size(a[0]), _size(b[0])), _size(values))
            found.append((values, as_array(errors) + unit_roundoff(node.dtype) * size))
        else:
            found.append((values, errors))
    return found


def _size(values: Array) -> Array:
    """Return the magnitudes of `values`, or 0 where they are not finite."""
    return np.where(np.isfinite(values), np.abs(values), 0.0)


def of_any_grouping(kind: TupleReduction, number: int, part: Bounded, other: Array) -> Array:
    """Return a bound of the errors of component `number` in any grouping. `part` are the values of
    the balanced tree with its errors, `other` those of another tree."""
    values, errors = part[0], as_array(part[1])
    bound = np.broadcast_to(errors, values.shape).astype(np.float64)
    agree = same(values, other)
    if not any(may_round(node) for node in kind.combine):
        # The errors of both trees start from the same values.
        close = np.abs(values.astype(np.float64) - other) <= 2 * bound
        return np.where(agree | close, bound, np.inf)
    count = prod(axis.extent for axis in kind.axes)
    roundings = count if count <= FEW_TERMS else max(DEVIATIONS * sqrt(count), FEW_TERMS)
    bound = bound * (roundings / max(ceil(log2(max(count, 2))), 1))
    finite = np.isfinite(values) & np.isfinite(other)
    apart = np.where(finite, np.abs(values.astype(np.float64) - other), np.inf)
    return np.where(agree, bound, np.maximum(bound, MARGIN * apart))
