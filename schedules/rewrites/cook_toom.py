"""The matrices of fast short convolutions, computed from interpolation points in exact fractions.

F(m, r) computes m outputs y[o] = sum_t d[o + t] g[t] of a filter of r taps with n = m + r - 1
products instead of m * r: y = A (G g * B d), where * multiplies element by element. Sources:
Toom-Cook interpolation with one point at infinity; Winograd, "Arithmetic Complexity of
Computations" (SIAM, 1980); for two dimensions Lavin and Gray, "Fast algorithms for convolutional
neural networks" (CVPR 2016, arXiv:1509.09308).

Only the points determine the error: moving a factor from a row of B to the row of G changes
nothing. The points in POINTS have the smallest `amplification` of all sets from {0, and plus or
minus 1, 1/2, 2, 2/3, 3/2, 3/4, 4/3, 5/4}. It is 4 for n = 4, and 12.3 for n = 6, compared with 29.3
for the usual points 0, +-1, +-2. On points of symmetry, see Barabasz, Anderson, Soodhalter and
Gregg, "Error analysis and improving the accuracy of Winograd convolution for deep neural networks"
(ACM TOMS 46(4), 2020, doi:10.1145/3412380).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import prod

Matrix = tuple[tuple[Fraction, ...], ...]

POINTS: dict[int, tuple[Fraction, ...]] = {
    4: (Fraction(0), Fraction(1), Fraction(-1)),
    6: (Fraction(0), Fraction(3, 2), Fraction(-3, 2), Fraction(2, 3), Fraction(-2, 3)),
}
"""Finite interpolation points by the number of products n. Opposite points are adjacent because
their rows share subexpressions."""


@dataclass(frozen=True, slots=True)
class FastFilter:
    """The matrices of F(m, r): `outputs` is A (m, n), `taps` is G (n, r), `inputs` is B (n, n)."""

    outputs: Matrix
    taps: Matrix
    inputs: Matrix

    @property
    def products(self) -> int:
        return len(self.inputs)

    @property
    def amplification(self) -> Fraction:
        """The maximum over o and t of the sum over k and i of |A[o][k] G[k][t] B[k][i]|.

        It bounds the sum of the magnitudes of an output's terms, relative to max|d| * sum|g|.
        """
        return max(
            sum(
                (
                    abs(row[k] * self.taps[k][t]) * sum(map(abs, self.inputs[k]))
                    for k in range(self.products)
                ),
                Fraction(0),
            )
            for row in self.outputs
            for t in range(len(self.taps[0]))
        )


def has_filter(outputs: int, taps: int) -> bool:
    """Return whether POINTS has points for F(outputs, taps)."""
    return outputs > 1 and taps > 1 and outputs + taps - 1 in POINTS


@lru_cache
def fast_filter(outputs: int, taps: int) -> FastFilter:
    """Return F(outputs, taps). Raise KeyError if `has_filter` is false."""
    n = outputs + taps - 1
    points = POINTS[n]
    a = tuple((*(p**o for p in points), Fraction(o == outputs - 1)) for o in range(outputs))
    g: list[tuple[Fraction, ...]] = []
    b: list[tuple[Fraction, ...]] = []
    for k, p in enumerate(points):
        others = points[:k] + points[k + 1 :]
        scale = prod((p - q for q in others), start=Fraction(1))
        sign = -1 if scale < 0 else 1  # a positive first coefficient in G saves a negation
        g.append(tuple(sign * p**t / scale for t in range(taps)))
        b.append((*(sign * c for c in _with_roots(others)), Fraction(0)))
    g.append(tuple(Fraction(t == taps - 1) for t in range(taps)))
    b.append(_with_roots(points))
    return FastFilter(a, tuple(g), tuple(b))


def _with_roots(roots: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Return the coefficients of the monic polynomial with these roots, lowest first."""
    found: tuple[Fraction, ...] = (Fraction(1),)
    for root in roots:
        shifted = (Fraction(0), *found)
        scaled = (*(-root * c for c in found), Fraction(0))
        found = tuple(x + y for x, y in zip(shifted, scaled, strict=True))
    return found
