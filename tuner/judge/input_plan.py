"""The kinds of test inputs, and the input values that suit a workload.

The values depend on the value ranges of the workload's nodes
(`tilewright.schedules.reference.exactness`), never on its name. If inputs of both signs could give
a logarithm, root or division an argument without a finite value, all float inputs are positive.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from tilewright.schedules.reference.exactness import (
    MAX_INPUT,
    Ranges,
    ValueRange,
    full_span,
    integer_span,
    value_ranges,
)
from tilewright.schedules.workload.workload import Workload

from .discriminating_inputs import combined_values, reduced_dims


class InputKind(StrEnum):
    """The distribution of inputs. The first three are integers, also in float tensors.

    - integers: uniform over the integer range of the workload. Results are exact if possible.
    - spikes: the lower end of that range, with a few values at the upper end: about four per
      reduction, and half of the last positions along each axis. A missing term is detected even if
      thousands of others are added, as in a softmax.
    - extremes: integer types over their full range, a fifth of the values at its ends; floats are
      normal.
    - normal: N(0, 1). uniform: U(0, 1).
    - special: normal, with zeros of both signs, 5 % denormals, 10 % of magnitudes up to 2**10, and
      a few large values.
    - wide: like special, with all other magnitudes up to 2**10 and no large values, for workloads
      whose results may overflow for these. Only this kind has differences between 59 and 87, whose
      exponentials are far below 1 but still normal numbers.
    - peaks: normal, with 100 to 6400 at one position of each row, the next position in the next row
      (the seed determines the first), and as much subtracted at a few positions. Exponentials
      overflow unless the kernel first subtracts the correct maximum.
    - sunk: one input (the seed selects it) is -8008 to -8000, and 100 to 6400 more at one position
      of each row as above. All other inputs are U(0, 1); integers are in the lower quarter of their
      type, or 1 and 2. A maximum, also of products, is then far below zero. The kernel must start
      from the identity of the reduction and include all terms.
    - raised: the mirror image of sunk, for minima.

    The following have few distinct values, for which inexact operations are exact:

    - anchors: -2**14, 0 and 2**14, a third each. Exponentials are 0 or 1, sigmoids also 1/2, and
      their sums are counts. below: -2**14 and 0. above: 0 and 2**14.
    - lone_top: one input (the seed selects it) is -2**14, and 0 at one position of each line along
      a reduction, the next position in the next line (the seed determines the first). The other
      inputs are 1 and 2. lone_bottom: the same with 2**14. They detect a maximum or minimum that
      omits a position.
    - few: -2**14, and N(0, 1) at four positions of each line. Exponentials and sigmoids of -2**14
      are 0, so sums have four terms, each within the error bound of the function.
    - balanced: integers between 1 and 4 of both signs whose sum is zero along every axis, so that
      means are zero and variances are sums of integers.
    - single: one float input (the seed selects it) has full significands; the others are a power of
      two at one position of each line and zero elsewhere. Sums then have one term. Neither this
      term nor an operand may be rounded.
    - swept: one input (the seed selects it) has magnitudes over the whole range of its type,
      denormals included: a third between 2**-12 and 2**10, and a third evenly between the arguments
      of the least and the greatest exponential. Each line along a reduction has one magnitude. The
      other inputs are normal, or its replacement below.
    - signed: U(0.5, 1.5) with either sign, for workloads whose inputs are otherwise positive.
      `seed` modulo the number of inputs + 1 selects all inputs, or one.

    Workloads that need positive inputs have U(0.5, 1.5) for normal and uniform, positive peaks
    only, and powers of two between 1/64 and 64 times U(1, 2) for special. Their sunk values are
    1/64 to 1/32, and eight times as much at one position of each row. Their anchors are 1/4, 1 and
    4. A quarter of their swept values are negative nevertheless.
    """

    INTEGERS = "integers"
    SPIKES = "spikes"
    EXTREMES = "extremes"
    NORMAL = "normal"
    UNIFORM = "uniform"
    SPECIAL = "special"
    WIDE = "wide"
    PEAKS = "peaks"
    SUNK = "sunk"
    RAISED = "raised"
    ANCHORS = "anchors"
    BELOW = "below"
    ABOVE = "above"
    LONE_TOP = "lone_top"
    LONE_BOTTOM = "lone_bottom"
    FEW = "few"
    BALANCED = "balanced"
    SINGLE = "single"
    SIGNED = "signed"
    SWEPT = "swept"


CONTINUOUS = frozenset({InputKind.NORMAL, InputKind.UNIFORM, InputKind.SIGNED})
"""Kinds whose significands are drawn from continuous distributions."""


@dataclass(frozen=True, slots=True)
class InputPlan:
    """The input values that suit a workload.

    Integers are drawn from `low..high` (unsigned types: from max(low, 0)). With these, `exact`
    states that every result is exact, and `exact_stages` are the stages without rounding.
    `exact_extremes` states that all inputs are integers and that results are exact for every value.
    If `positive`, float inputs must be positive. Large special values are below
    2**`large_exponent`. `terms` is the number of terms of the longest reduction. `dims` are the
    dimensions of each input along reductions.
    """

    low: int
    high: int
    exact: bool
    exact_stages: frozenset[str]
    exact_extremes: bool
    positive: bool
    large_exponent: int
    terms: int
    dims: Mapping[str, tuple[int, ...]]


REAL_SPAN = 8.0
"""Normal values are clipped to [-8, 8], which changes one value in 10**15."""
WIDE_EXPONENT = 10  # wide values are below 2**10
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
    )


def plan_for_rewritten(plan: InputPlan, rewritten: Workload) -> InputPlan:
    """Return `plan` of the original workload with the exactness of the rewritten workload."""
    spans = {
        t.name: ValueRange(plan.low if t.dtype.is_signed else max(plan.low, 0), plan.high, 0)
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
    """Return the widest range of integers that leaves the most stages without rounding."""

    def ranges(high: int) -> Ranges:
        spans = {t.name: integer_span(t, high) for t in workload.inputs}
        if positive:
            spans = {name: ValueRange(1, max(s.hi, 1), 0) for name, s in spans.items()}
        return value_ranges(workload, spans)

    found = [(high, ranges(high)) for high in range(MAX_INPUT, 0, -1)]
    high, best = max(found, key=lambda item: (item[1].exact, len(item[1].exact_tensors), item[0]))
    return (1 if positive else -high), high, best


def _large_exponent(workload: Workload) -> int:
    """Return the largest exponent in `LARGE_EXPONENTS` without overflow, or 0."""
    floats = [t.dtype.binary.max_exponent for t in workload.inputs if t.dtype.is_float]
    for exponent in LARGE_EXPONENTS:
        span = ValueRange(-(2.0**exponent), 2.0**exponent, None)
        if all(exponent < most - 2 for most in floats) and _with_floats(workload, span).bounded:
            return exponent
    return 0
