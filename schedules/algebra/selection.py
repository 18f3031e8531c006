"""Selection by data: terms of a reduction that are neutral unless a position equals an integer.

    I[n] == v ? X[n] : 0

The position v may be a reduction axis: then the reduction is a read at the integer
(`rewrites/gather_selected.py`). Or it may be an output axis: then every term is combined into one
output (`nest/selected.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..dtypes import DType
from .affine import Affine, var
from .neutral import is_identity, without_unit_factors
from .scalar import (
    DATA_TYPES,
    Binary,
    BinaryOp,
    Cast,
    Compare,
    CompareOp,
    Const,
    IndexValue,
    Reducer,
    Scalar,
    Select,
    rewrite,
    vars_of,
    walk,
)


@dataclass(frozen=True, slots=True)
class SelectedTerm:
    """A term that is the reducer's identity unless a variable is equal to `place`, an integer that
    does not depend on the variable."""

    test: Compare
    place: Scalar
    value: Scalar
    """The term if the variable is equal to `place`."""


def selected_terms(
    term: Scalar, name: str, reducer: Reducer, *, exact: bool = True
) -> Iterator[SelectedTerm]:
    """Yield each selection of `term` by the value of the variable `name`.

    Unless `exact`, zeros of masks are implicit zeros: a product with such a zero counts as the
    identity of a sum even if the other factor is infinite or NaN (docs/math.md).
    """
    for test, place in _equalities(term, name):
        otherwise = decided(term, test, holds=False)
        if _is_always(otherwise, reducer) if exact else is_identity(otherwise, reducer):
            value = without_unit_factors(decided(term, test, holds=True))
            yield SelectedTerm(test, place, value)


@dataclass(frozen=True, slots=True)
class SelectedTerms:
    """A term for the only values of some variables for which it is not the identity."""

    value: Scalar
    by_name: Mapping[str, SelectedTerm]
    """The selection by each variable. No integer depends on one of these variables."""

    @property
    def places(self) -> dict[str, Scalar]:
        return {name: term.place for name, term in self.by_name.items()}

    @property
    def used(self) -> frozenset[str]:
        """The variables on which the integers depend."""
        return frozenset[str]().union(*map(vars_of, self.places.values()))


def selections(
    term: Scalar, names: Sequence[str], reducer: Reducer, *, exact: bool = True
) -> SelectedTerms:
    """Return the selections of `term` by variables of `names`, one after the other. `exact` is as
    in `selected_terms`."""
    value, by_name = term, dict[str, SelectedTerm]()
    for name in names:
        for found in selected_terms(value, name, reducer, exact=exact):
            if vars_of(found.place).isdisjoint(by_name):
                value, by_name[name] = found.value, found
                break
    selected = SelectedTerms(value, by_name)
    used = selected.used
    if used.isdisjoint(by_name):
        return selected
    return selections(term, [name for name in names if name not in used], reducer, exact=exact)


def _is_always(value: Scalar, reducer: Reducer) -> bool:
    """Return whether `value` is the identity of `reducer`, whatever the data are."""
    match value:
        case Const(found):
            return found == reducer.identity(value.dtype)
        case Cast(x) if reducer in (Reducer.SUM, Reducer.PROD):
            return _is_always(x, reducer)
        case _:
            return not value.dtype.is_float and is_identity(value, reducer)


def _equalities(term: Scalar, name: str) -> Iterator[tuple[Compare, Scalar]]:
    """Yield the comparisons that hold for one value of the variable `name` at most, with this
    value."""
    for node in dict.fromkeys(walk(term)):
        if not isinstance(node, Compare) or node.op not in (CompareOp.EQ, CompareOp.NE):
            continue
        for number, other in ((node.a, node.b), (node.b, node.a)):
            if not isinstance(number, IndexValue) or number.dtype not in DATA_TYPES:
                continue
            rest = number.index - var(name)
            if number.index.coefficient(name) == 1 and name not in rest.vars() | vars_of(other):
                # Differences wrap around, and so do positions that are compared: both are integers
                # of the same type.
                yield node, _minus(other, rest)


def _minus(value: Scalar, index: Affine) -> Scalar:
    if index.is_const and index.const == 0:
        return value
    return Binary(BinaryOp.SUB, value, IndexValue(index, value.dtype))


def decided(term: Scalar, test: Compare, *, holds: bool) -> Scalar:
    """Return `term` simplified under the assumption that the equality or inequality `test` is one
    of equal values, or if not `holds`, of different values."""
    outcome = Const(int(holds is (test.op is CompareOp.EQ)), DType.BOOL)

    def leaf(node: Scalar) -> Scalar | None:
        match node:
            case Compare() if node == test:
                return outcome
            case Select(cond, on_true, on_false):
                known = rewrite(cond, leaf)
                if isinstance(known, Const):
                    return rewrite(on_true if known.value else on_false, leaf)
                first, second = rewrite(on_true, leaf), rewrite(on_false, leaf)
                return first if first == second else Select(known, first, second)
            case Cast(x, dtype) if x.dtype is DType.BOOL:
                known = rewrite(x, leaf)
                if isinstance(known, Const):
                    return Const(known.value, dtype)
                return Cast(known, dtype)
            case Binary(BinaryOp.BIT_AND | BinaryOp.BIT_OR as op, a, b) if a.dtype is DType.BOOL:
                return _joined(op, rewrite(a, leaf), rewrite(b, leaf))
            case _:
                return None

    return rewrite(term, leaf)


def _joined(op: BinaryOp, a: Scalar, b: Scalar) -> Scalar:
    """Return `a & b` or `a | b` of bools, simplified if one of them is a constant."""
    for known, other in ((a, b), (b, a)):
        if isinstance(known, Const):
            return other if (known.value == 1) is (op is BinaryOp.BIT_AND) else known
    return Binary(op, a, b)
