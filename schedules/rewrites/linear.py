"""Products of rows of a constant matrix with a vector of scalar expressions.

`groups` divide the terms of a row. The terms of a group are added first, so that rows that differ
only in the signs of groups share subexpressions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from ..algebra.affine import Affine
from ..algebra.comparisons import Eq0
from ..algebra.scalar import All, Binary, BinaryOp, Cast, Const, Scalar, Select, Unary, UnaryOp
from ..dtypes import DType
from .cook_toom import Matrix

Term = Callable[[int], Scalar]


def chosen_row(
    matrix: Matrix, chooser: Affine, term: Term, groups: Sequence[Sequence[int]], dtype: DType
) -> Scalar:
    """Return row `chooser` of `matrix` times the vector (`term(0)`, `term(1)`, ...), as a chain of
    Selects over the rows. The chain is folded if the loop of `chooser` is unrolled."""
    rows = [row_times(row, term, groups, dtype) for row in matrix]
    found = rows[-1]
    for number in range(len(rows) - 2, -1, -1):
        found = Select(All((Eq0(chooser - number),)), rows[number], found)
    return found


def row_times(
    row: Sequence[Fraction], term: Term, groups: Sequence[Sequence[int]], dtype: DType
) -> Scalar:
    """Return `sum(row[i] * term(i))`, with the terms of each group added first."""
    parts = [p for p in (_part(row, term, group, dtype) for group in groups) if p is not None]
    parts.sort(key=lambda part: part[0] < 0)  # a positive part first, if there is one
    sign, total = parts[0]
    if sign < 0:
        total = Unary(UnaryOp.NEG, total)
    for sign, part in parts[1:]:
        total = Binary(BinaryOp.ADD if sign > 0 else BinaryOp.SUB, total, part)
    return total


def _part(
    row: Sequence[Fraction], term: Term, group: Sequence[int], dtype: DType
) -> tuple[int, Scalar] | None:
    """Return (sign, value): the sum of the terms of a group is sign * value. Return None if all
    coefficients of the group are zero. The last term of the group is positive in `value`."""
    used = [i for i in reversed(group) if row[i]]
    if not used:
        return None
    sign = 1 if row[used[0]] > 0 else -1
    same = len({abs(row[i]) for i in used}) == 1
    total: Scalar | None = None
    for i in used:
        value = term(i) if same else times(abs(row[i]), term(i), dtype)
        if total is None:
            total = value
        else:
            op = BinaryOp.ADD if row[i] * sign > 0 else BinaryOp.SUB
            total = Binary(op, total, value)
    assert total is not None
    return sign, times(abs(row[used[0]]), total, dtype) if same else total


def times(factor: Fraction, value: Scalar, dtype: DType) -> Scalar:
    """Return `factor * value`. If f32 cannot represent `factor`, it is a cast from f64, so that the
    error analysis includes its rounding."""
    if factor == 1:
        return value
    constant: Scalar = Const(float(factor), dtype)
    if dtype is DType.F32 and not is_dyadic(factor):
        constant = Cast(Const(float(factor), DType.F64), dtype)
    return Binary(BinaryOp.MUL, constant, value)


def is_dyadic(factor: Fraction) -> bool:
    """Return whether a float represents `factor` exactly. The size of the numerator is not checked
    because only factors with few bits occur here."""
    return factor.denominator & (factor.denominator - 1) == 0


def roundings(matrix: Matrix) -> int:
    """Return the maximum number of roundings of a term of a row: its factor, product and
    additions."""
    most = 0
    for row in matrix:
        used = [abs(c) for c in row if c]
        factor = max((0 if c == 1 else 1 if is_dyadic(c) else 2) for c in used)
        most = max(most, factor + len(used) - 1)
    return most
