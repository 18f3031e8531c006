"""Limits of a divided index, stated for the quotient.

If n divides i, the limits `i >= 1` and `i >= n` are equal, and so are `i < n*m - 1` and `i < n*m`.
In a read `X[i//n]`, all of them are limits of `i//n`, which bound the read without a division.
"""

from __future__ import annotations

from dataclasses import dataclass

from .affine import Affine, FloorDiv, Var
from .comparisons import Cond, Ge0
from .congruence import congruence_of
from .scalar import All, Scalar, Select, loads
from .scalar import rewrite as rewrite_scalar


def limiting_quotients(body: Scalar) -> Scalar:
    """Return `body` with the limits in its guards stated for the quotients that the guarded reads
    use as indices, where this is equivalent."""

    def leaf(node: Scalar) -> Scalar | None:
        if not isinstance(node, Select) or not isinstance(node.cond, All):
            return None
        conds = node.cond.conds
        for load in loads(node.on_true):
            for index in load.index:
                quotient = _Quotient.of(index)
                if quotient is not None:
                    exact = any(quotient.is_made_exact_by(c) for c in conds)
                    conds = tuple(quotient.limit(c, exact=exact) for c in conds)
        on_true, on_false = (limiting_quotients(side) for side in (node.on_true, node.on_false))
        return Select(All(conds), on_true, on_false)

    return rewrite_scalar(body, leaf)


@dataclass(frozen=True, slots=True)
class _Quotient:
    """The index `index` = `dividend` // `divisor`."""

    index: Affine
    dividend: Affine
    divisor: int

    @classmethod
    def of(cls, index: Affine) -> _Quotient | None:
        """Return `index` as a quotient of a plain sum of variables, or None if it is none."""
        quotients = [(atom, c) for atom, c in index.terms if isinstance(atom, FloorDiv)]
        if len(quotients) != 1 or quotients[0][1] != 1:
            return None
        quotient = quotients[0][0]
        rest = index - Affine(((quotient, 1),), 0)
        dividend = quotient.numerator + rest * quotient.divisor
        plain = all(isinstance(atom, Var) for atom, _ in dividend.terms)
        return cls(index, dividend, quotient.divisor) if plain else None

    def is_made_exact_by(self, cond: Cond) -> bool:
        """Return whether `cond` states that the divisor divides the dividend."""
        found = congruence_of(cond)
        if found is None or found.modulus != self.divisor:
            return False
        return any(
            all(c % self.divisor == 0 for c in (other.const, *(c for _, c in other.terms)))
            for other in (found.index - self.dividend, found.index + self.dividend)
        )

    def limit(self, cond: Cond, *, exact: bool) -> Cond:
        """Return `cond`, as a limit of the quotient if it is an equivalent limit of the dividend.
        `exact` states whether the divisor divides the dividend."""
        if not isinstance(cond, Ge0):
            return cond
        if cond.index.terms == self.dividend.terms:  # dividend + more >= 0
            more = cond.index.const - self.dividend.const
            if exact or more % self.divisor == 0:
                return Ge0(self.index + more // self.divisor)
        if cond.index.terms == (-self.dividend).terms:  # more - dividend >= 0
            more = cond.index.const + self.dividend.const
            if exact or (more + 1) % self.divisor == 0:
                return Ge0(-self.index + more // self.divisor)
        return cond
