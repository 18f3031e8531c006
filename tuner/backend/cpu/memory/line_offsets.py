"""Offsets of arrays in their cache lines. Each checked call has a different pattern of offsets, its
*turn*."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.schedules.workload.tensors import Tensor

from .guarded import LINE_BYTES

TURNS = 32
_WORDS = 16
_WORD_BYTES = LINE_BYTES // _WORDS
_QUARTERS = 4


def line_offsets(tensors: Sequence[Tensor], turn: int) -> tuple[int, ...]:
    """Return the offset in bytes of each array in its cache line, a multiple of its element size.

    In turns 0 to 15, each array begins once at each four-byte word of a line. The word is `a * turn
    + c` in the field of 16 elements, with a different `a` for each array. So the exclusive or of
    the words of two arrays (of up to 15) has each of the 16 values once. In turns 16 to 31, arrays
    begin at quarters of a line. The quarter is `a * x + y` in the field of four elements, so two
    arrays (of up to four) have each of the 16 combinations once. Elements of eight bytes have half
    as many offsets. Elements smaller than a word also begin at different bytes of a word.
    """
    turn %= TURNS
    found = []
    for number, tensor in enumerate(tensors):
        if turn < _WORDS:
            word = _times(1 + number % (_WORDS - 1), turn, 4) ^ (5 * number + 3) % _WORDS
        else:
            x, y = divmod(turn - _WORDS, _QUARTERS)
            word = _WORDS // _QUARTERS * (_times(number % _QUARTERS, x, 2) ^ y)
        found.append(_bytes(word, tensor, turn))
    return tuple(found)


def _bytes(word: int, tensor: Tensor, turn: int) -> int:
    element = tensor.dtype.bytes
    within = turn * element % _WORD_BYTES if turn < _WORDS and element < _WORD_BYTES else 0
    return word * _WORD_BYTES // element * element + within


def _times(a: int, b: int, bits: int) -> int:
    """Return a * b in the field of 2^bits elements, whose elements are polynomials modulo x^bits +
    x + 1."""
    product = 0
    for bit in range(bits):
        product ^= (a << bit) * (b >> bit & 1)
    for bit in range(2 * bits - 2, bits - 1, -1):
        product ^= ((1 << bits | 0b11) << bit - bits) * (product >> bit & 1)
    return product
