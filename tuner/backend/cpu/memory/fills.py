"""Fills of memory that a kernel has not written, chosen so that reading it shows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

_WORD_BYTES = 8
_BLOCK_WORDS = 8 * 1024
_NUMBER_BYTES = (0x7B, 0xFB, 0x00, 0x3B, 0x80, 0xBB, 0x55)
"""Bytes that, repeated, are a number in every type: as floats large, very negative, zero, small
positive, tiny negative, small negative, large; as integers as different. Whatever an accumulator
computes, some of them change its result, and some survive where others are absorbed."""


@dataclass(frozen=True, slots=True, eq=False)
class Fill:
    """A block of bytes that is repeated over a buffer."""

    block: NDArray[np.uint8]

    def into(self, view: NDArray[np.uint8]) -> None:
        """Overwrite all of `view`."""
        block = self.block
        for start in range(0, view.size, block.size):
            view[start : start + block.size] = block[: view.size - start]


@cache
def constant(byte: int) -> Fill:
    """The same byte everywhere; with 0xFF each float is NaN."""
    return Fill(np.full(_WORD_BYTES * _BLOCK_WORDS, byte, np.uint8))


@cache
def _numbers(turn: int) -> Fill:
    count = len(_NUMBER_BYTES)
    words = np.resize(np.roll(np.array(_NUMBER_BYTES, np.uint8), -turn), _BLOCK_WORDS * count)
    return Fill(words.repeat(_WORD_BYTES))


def numbers(turn: int) -> Fill:
    """Numbers of all magnitudes and both signs, a different one in each word of eight bytes; with
    each turn they move by one word."""
    return _numbers(turn % len(_NUMBER_BYTES))
