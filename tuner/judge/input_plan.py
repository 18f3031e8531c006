"""The kinds of test inputs, and the input values that suit a workload.

The values depend on the value ranges of the workload's nodes
(`tilewright.schedules.reference.exactness`), never on its name. With inputs of both signs, a
logarithm, root or division may have an argument without a finite value. If so, the workload needs
positive inputs: all float inputs are positive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from tilewright.schedules.algebra.affine import Interval
from tilewright.schedules.reference.exactness import (
    MAX_INPUT,
    Ranges,
    ValueRange,
    full_span,
    integer_span,
    value_ranges,
)
from tilewright.schedules.workload.workload import Workload

from .discriminating_inputs import combined_values, compared_positions, reduced_dims
from .index_inputs import indexing_inputs


class InputKind(StrEnum):
    """The distribution of inputs.

    The text of a member is about float inputs. "Positive:" precedes the values for workloads that
    need positive inputs, and "Integer types:" the values for inputs of integer type. Without such
    an entry, inputs of integer type are drawn as in `extremes`, or from `anchors` to `single` as in
    `integers`. The kinds from `anchors` to `single` have few distinct values, for which inexact
    operations are exact.
    """

    INTEGERS = "integers"
    """Integers, uniform over the integer range of the workload (`InputPlan`). Results are exact if
    possible. Integer types: the same."""
    SPIKES = "spikes"
    """Integers at the lower end of that range. At the upper end are about four random terms of each
    reduction, and a random half of the elements at the last position of each axis. A missing term
    is detected even if thousands of others are added, as in a softmax. Integer types: the same."""
    EXTREMES = "extremes"
    """N(0, 1). Positive: U(0.5, 1.5). Integer types: their full range, with a fifth of the values
    at its ends."""
    NORMAL = "normal"
    """N(0, 1). Positive: U(0.5, 1.5)."""
    UNIFORM = "uniform"
    """U(0, 1). Positive: U(0.5, 1.5)."""
    SPECIAL = "special"
    """N(0, 1), but 10 % are zeros of both signs, at most 5 % are denormals, 10 % are scaled to
    magnitudes up to 2**10, and a few are large. Positive: U(1, 2) times powers of two between 1/64
    and 32."""
    WIDE = "wide"
    """Like `special`, but all values that are not zeros or denormals are scaled to magnitudes up to
    2**10, and none is large. It is for workloads that may overflow for large values. Only this kind
    has pairs of values whose difference is between 59 and 87. The exponentials of such negative
    differences are far below 1 but still normal numbers."""
    PEAKS = "peaks"
    """N(0, 1), but one element of each row is 100 to 6400. Its position moves from row to row, and
    the seed determines the first one. From a few other elements, 100 to 6400 is subtracted.
    Exponentials overflow unless the kernel first subtracts the correct maximum. Positive: U(0.5,
    1.5), with the same peaks and no subtraction."""
    SUNK = "sunk"
    """One input, which the seed selects, is -8008 to -8000. One element of each row is 100 to 6400
    larger. All other inputs are as in `uniform`. A maximum, also of products, is then far below
    zero. The kernel must start from the identity of the reduction and include all terms. Positive:
    the selected input is 1/64 to 1/32, and one element of each row is eight times as large. Integer
    types: the selected input is in the lower quarter of its type, and all others are 1 or 2."""
    RAISED = "raised"
    """The mirror image of `sunk`, for minima. One input, which the seed selects, is 8000 to 8008.
    One element of each row is 100 to 6400 smaller. All other inputs are as in `uniform`. Integer
    types: the selected input is in the upper quarter of its type, and all others are 1 or 2."""
    ANCHORS = "anchors"
    """-2**14, 0 and 2**14, a third each. For a long reduction, all but a few are 2**14.
    Exponentials are 0 or 1, sigmoids also 1/2, and their sums are counts. Positive: 1/4, 1 and
    4."""
    BELOW = "below"
    """-2**14 and 0, half each. For a long reduction, all but a few are -2**14. Positive: 1/4, 1 and
    4."""
    ABOVE = "above"
    """2**14 and 0, half each. For a long reduction, all but a few are 2**14. Positive: 1/4, 1 and
    4."""
    LONE_TOP = "lone_top"
    """One input, which the seed selects, is 0 at one position of each line along a reduction, and
    -2**14 elsewhere. The position moves from line to line. The other inputs are 1 or 2. A maximum
    that omits a position is detected. Positive: 1 instead of 0, and 1/64 instead of -2**14. Integer
    types: the greatest and the least value of the type."""
    LONE_BOTTOM = "lone_bottom"
    """The mirror image of `lone_top`, for minima. One input is 0 at one position of each line, and
    2**14 elsewhere. The other inputs are 1 or 2. Positive: 1 instead of 0, and 64 instead of 2**14.
    Integer types: the least and the greatest value of the type."""
    FEW = "few"
    """-2**14, except for N(0, 1) at four positions of each line. Exponentials and sigmoids of
    -2**14 are 0. So sums have four terms, each within the error bound of the function. Positive:
    U(0.5, 1.5)."""
    BALANCED = "balanced"
    """Integers of both signs and of magnitude 1 to 4, whose sum is zero along every axis. So means
    are zero, and variances are sums of integers. Positive: their magnitudes plus 1."""
    SINGLE = "single"
    """One float input, which the seed selects, is N(0, 1), with full significands. The others are a
    power of two at one position of each line, and zero elsewhere. So sums have one term. Neither
    this term nor an operand may be rounded. Positive: the selected input is U(0.5, 1.5), and the
    others are powers of two everywhere."""
    SIGNED = "signed"
    """U(0.5, 1.5) with either sign, for workloads that need positive inputs otherwise. If `seed` %
    (number of inputs + 1) is 0, all inputs have both signs. If it is n, only input n - 1 has both
    signs."""
    SWEPT = "swept"
    """One float input, which the seed selects, has all magnitudes of its type (see `spread`), with
    both signs. Each line along a reduction has about one magnitude. The other inputs are N(0, 1).
    Positive: the others are U(0.5, 1.5), and a quarter of the selected input is negative."""


CONTINUOUS = frozenset({InputKind.NORMAL, InputKind.UNIFORM, InputKind.SIGNED})
"""Kinds whose significands are drawn from continuous distributions."""


@dataclass(frozen=True, slots=True)
class InputPlan:
    """The input values that suit a workload."""

    low: int
    """Integers are drawn from `low` to `high`, or from max(`low`, 0) for unsigned types."""
    high: int
    exact: bool
    """Whether every result is exact for these integers."""
    exact_stages: frozenset[str]
    """The stages without rounding for these integers."""
    exact_extremes: bool
    """Whether all inputs are of integer type, and results are exact for all their values."""
    positive: bool
    """Whether float inputs must be positive."""
    large_exponent: int
    """Large special values are below 2**`large_exponent`."""
    terms: int
    """The number of terms of the longest reduction."""
    dims: Mapping[str, tuple[int, ...]]
    """The dimensions of each input along which a reduction runs."""
    positions: Mapping[str, Interval]
    """The range of the indices that an integer input selects by comparison. In all kinds, most
    values of such an input are in this range."""
    indices: Mapping[str, tuple[int, ...]]
    """The integer inputs on which indices depend, with the extents of the dimensions. In all kinds,
    most values of such an input are indices of these dimensions, inside and outside."""


REAL_SPAN = 8.0
"""Values of `normal` are clipped to [-8, 8], which changes one value in 10**15."""
WIDE_EXPONENT = 10  # values of `wide` are below 2**10
LARGE_EXPONENTS = (60, 40, 20, 10, 5, 3)


def plan_inputs(workload: Workload) -> InputPlan:
    """Return the plan for `workload`, derived from the value ranges of its nodes."""
    positive = not _with_floats(workload, ValueRange(-REAL_SPAN, REAL_SPAN, None)).defined
    low, high, ranges = _integer_range(workload, positive)
    return InputPlan(
        low,
        high,
        exact=ranges.exact,
        exact_stages=ranges.exact_tensors & {s.name for s in workload.stages},
        exact_extremes=_with_floats(workload, ValueRange(-REAL_SPAN, REAL_SPAN, None)).exact,
        positive=positive,
        large_exponent=_large_exponent(workload),
        terms=max(map(combined_values, workload.stages), default=1),
        dims=reduced_dims(workload),
        positions=compared_positions(workload),
        indices=indexing_inputs(workload),
    )


def plan_for_rewritten(plan: InputPlan, rewritten: Workload) -> InputPlan:
    """Return `plan`, which is for the original workload, with the exactness of the rewritten
    workload."""
    spans = {
        t.name: full_span(t.dtype)
        if t.name in plan.indices
        else ValueRange(plan.low if t.dtype.is_signed else max(plan.low, 0), plan.high, 0)
        for t in rewritten.inputs
    }
    whole = value_ranges(rewritten, spans)
    extremes = _with_floats(rewritten, ValueRange(-REAL_SPAN, REAL_SPAN, None))
    return replace(
        plan,
        exact=plan.exact and whole.exact,
        exact_stages=whole.exact_tensors & {s.name for s in rewritten.stages},
        exact_extremes=plan.exact_extremes and extremes.exact,
    )


def _with_floats(workload: Workload, span: ValueRange) -> Ranges:
    spans = {t.name: span if t.dtype.is_float else full_span(t.dtype) for t in workload.inputs}
    return value_ranges(workload, spans)


def _integer_range(workload: Workload, positive: bool) -> tuple[int, int, Ranges]:
    """Return the widest range of integers for which the most stages have no rounding."""

    indices = indexing_inputs(workload)

    def ranges(high: int) -> Ranges:
        spans = {t.name: integer_span(t, high) for t in workload.inputs}
        if positive:
            spans = {name: ValueRange(1, max(s.hi, 1), 0) for name, s in spans.items()}
        indexing = {t.name: full_span(t.dtype) for t in workload.inputs if t.name in indices}
        return value_ranges(workload, spans | indexing)

    found = [(high, ranges(high)) for high in range(MAX_INPUT, 0, -1)]
    high, best = max(found, key=lambda item: (item[1].exact, len(item[1].exact_tensors), item[0]))
    return (1 if positive else -high), high, best


def _large_exponent(workload: Workload) -> int:
    """Return the largest exponent in `LARGE_EXPONENTS` for which no node of the workload overflows,
    or 0."""
    floats = [t.dtype.binary.max_exponent for t in workload.inputs if t.dtype.is_float]
    for exponent in LARGE_EXPONENTS:
        span = ValueRange(-(2.0**exponent), 2.0**exponent, None)
        if all(exponent < most - 2 for most in floats) and _with_floats(workload, span).bounded:
            return exponent
    return 0
