"""Odd f32 functions by polynomials whose coefficients are looked up in registers, as LLVM text.

The magnitude t of the argument is limited to where the function rounds to 1. The interval up to
there is divided into as many pieces as a register has floats. In piece j, the function is a
polynomial in r = t - center[j], and one instruction per power looks up the coefficients of all
lanes. At the limit the value is exactly 1 after rounding, and no value is above 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tilewright.schedules.algebra.scalar import UnaryOp

from . import math_polynomials as fitted
from .math_body import Body, round_to

_Row = tuple[float, ...]


class _Division(Protocol):
    """A division of the interval from 0 to `limit` into pieces, one for each entry of a table."""

    @property
    def limit(self) -> float:
        """Just below the end of the last piece."""

    def located(self, b: Body, t: str) -> tuple[str, str, str]:
        """Write the search for the piece of each t. Return the index of its entries, its center,
        and r. The center of piece 0 is 0."""

    def table(self, row: _Row) -> _Row:
        """Return the entries of all pieces in the order of the index."""


@dataclass(frozen=True, slots=True)
class _EqualPieces:
    """Pieces of equal width: piece j is centered at j * width."""

    centers: _Row
    """Multiples of a width with so few bits that they are exact."""

    @property
    def limit(self) -> float:
        return (len(self.centers) - 0.501) * self.centers[1]

    def located(self, b: Body, t: str) -> tuple[str, str, str]:
        """Write j = round(t / width), which is in the low bits of a sum."""
        width, magic = self.centers[1], b.const(b.fmt.magic)
        z = b.muladd(t, b.const(round_to(b.fmt, 1 / width)), magic)
        j = b.sub(z, magic)
        return b.to_bits(z), j, b.muladd(j, b.const(-width), t)

    def table(self, row: _Row) -> _Row:
        return row


@dataclass(frozen=True, slots=True)
class _GrowingPieces:
    """Pieces whose width doubles with 1 + t / first. They divide each of its octaves 1..2, 2..4,
    4..8 and 8..16 evenly."""

    centers: _Row
    first: float

    @property
    def limit(self) -> float:
        return 14.999 * self.first

    def located(self, b: Body, t: str) -> tuple[str, str, str]:
        """Write u = 1 + t / first. Its exponent and the first bits of its mantissa are the
        index."""
        u = b.muladd(t, b.const(round_to(b.fmt, 1 / self.first)), b.const(1.0))
        dropped = b.fmt.mantissa - (self._per_octave.bit_length() - 1)
        index = b.int_op("lshr", b.to_bits(u), b.int_const(dropped))
        center = b.lookup(self.table(self.centers), index)
        return index, center, b.sub(t, center)

    @property
    def _per_octave(self) -> int:
        return len(self.centers) // 4

    def table(self, row: _Row) -> _Row:
        """The exponent of 1 is 127. Its low two bits are set, so piece 0 is in the last octave."""
        return row[self._per_octave :] + row[: self._per_octave]


@dataclass(frozen=True, slots=True)
class _Polynomials:
    """A function by polynomials in pieces."""

    pieces: _Division
    rows: tuple[_Row, ...]
    """The coefficients of each power, lowest first, with one entry per piece. Piece 0 has the term
    t in addition, and no constant."""


def _written(b: Body, x: str, function: _Polynomials) -> str:
    """Write the function for vectors of as many lanes as there are pieces. NaN stays NaN, and zeros
    keep their sign."""
    pieces = function.pieces
    sign = b.int_op("and", b.to_bits(x), b.int_const(1 << (b.fmt.bits - 1)))
    t = b.at_most(b.intrinsic("fabs", x), b.const(round_to(b.fmt, pieces.limit)))
    index, center, r = pieces.located(b, t)
    constants, *rows = (b.lookup(pieces.table(row), index) for row in function.rows)
    slope = rows[-1]
    for row in reversed(rows[:-1]):
        slope = b.muladd(slope, r, row)
    start = b.select(b.compare("oeq", center, b.const(0.0)), t, constants)
    return b.from_bits(b.int_op("or", b.to_bits(b.muladd(slope, r, start)), sign))


_FUNCTIONS = {
    (UnaryOp.ERF, 16): _Polynomials(_EqualPieces(fitted.ERF_16_F32_CENTERS), fitted.ERF_16_F32),
    (UnaryOp.ERF, 8): _Polynomials(_EqualPieces(fitted.ERF_8_F32_CENTERS), fitted.ERF_8_F32),
    (UnaryOp.TANH, 16): _Polynomials(
        _GrowingPieces(fitted.TANH_16_F32_CENTERS, fitted.TANH_16_F32_FIRST), fitted.TANH_16_F32
    ),
    (UnaryOp.TANH, 8): _Polynomials(
        _GrowingPieces(fitted.TANH_8_F32_CENTERS, fitted.TANH_8_F32_FIRST), fitted.TANH_8_F32
    ),
}


def piecewise(op: UnaryOp, floats: int) -> Callable[[Body, str], str] | None:
    """Return the writer of `op` by tables of `floats` floats, for vectors of as many lanes, or None
    if there is none."""
    function = _FUNCTIONS.get((op, floats))
    return None if function is None else lambda b, x: _written(b, x, function)
