"""Odd f32 functions by polynomials whose coefficients are looked up in registers, as LLVM text.

The magnitude t of the argument is limited to where the function rounds to 1, and is divided into
as many pieces as a register has floats. In piece j, the function is a polynomial in r = t -
center[j]. One instruction per power looks up the coefficients, so no lane computes what another
one needs. The value at the limit is exactly 1 after rounding, and polynomials are so close to the
function that no value is above 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.schedules.algebra.scalar import UnaryOp

from . import math_polynomials as fitted
from .math_body import Body, round_to


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Polynomials for pieces of equal width. Piece j is centered at j * width."""

    width: float
    """It has so few bits that j * width is exact."""
    rows: tuple[tuple[float, ...], ...]
    """The coefficients of each power, lowest first, with one entry per piece. Piece 0 has the term
    t in addition."""

    @property
    def limit(self) -> float:
        """Just below the end of the last piece."""
        return (len(self.rows[0]) - 0.501) * self.width


def _by_equal_pieces(b: Body, x: str, pieces: _Pieces) -> str:
    """Write the function for vectors of as many lanes as there are pieces. NaN stays NaN, and zeros
    keep their sign."""
    sign_bit = 1 << (b.fmt.bits - 1)
    sign = b.int_op("and", b.to_bits(x), b.int_const(sign_bit))
    t = b.at_most(b.intrinsic("fabs", x), b.const(round_to(b.fmt, pieces.limit)))
    magic = b.const(b.fmt.magic)
    z = b.muladd(t, b.const(round_to(b.fmt, 1 / pieces.width)), magic)
    j, index = b.sub(z, magic), b.to_bits(z)
    r = b.muladd(j, b.const(-pieces.width), t)
    constants, *rows = (b.lookup(row, index) for row in pieces.rows)
    slope = rows[-1]
    for row in reversed(rows[:-1]):
        slope = b.muladd(slope, r, row)
    start = b.select(b.compare("oeq", j, b.const(0.0)), t, constants)
    return b.from_bits(b.int_op("or", b.to_bits(b.muladd(slope, r, start)), sign))


def _equal(centers: tuple[float, ...], rows: tuple[tuple[float, ...], ...]) -> _Pieces:
    return _Pieces(centers[1], rows)


_ERF = {
    16: _equal(fitted.ERF_16_F32_CENTERS, fitted.ERF_16_F32),
    8: _equal(fitted.ERF_8_F32_CENTERS, fitted.ERF_8_F32),
}

PIECEWISE: dict[tuple[UnaryOp, int], Callable[[Body, str], str]] = {
    (UnaryOp.ERF, floats): lambda b, x, pieces=pieces: _by_equal_pieces(b, x, pieces)
    for floats, pieces in _ERF.items()
}
"""Writers of the functions, by the operation and the number of floats in a table."""
