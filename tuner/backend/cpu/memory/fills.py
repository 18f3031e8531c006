"""What memory that a kernel has not written is filled with, so that reading it shows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

_WORD_BYTES = 8
_BLOCK_WORDS = 8 * 1024
_NUMBER_BYTES = (0x7B, 0xFB, 0x00, 0x3B, 0x80, 0xBB, 0x55)
"""Repeated, each is a number in every type: in floats far above zero, far below it, zero, a small
one, the least below zero, a small one below it, a large one; in integers as spread. Whatever an
accumulator is for, some of them change its result, and some survive where others are lost."""


@dataclass(frozen=True, slots=True, eq=False)
class Fill:
    """Bytes that are repeated over a buffer, from its start."""

    block: NDArray[np.uint8]

    def into(self, view: NDArray[np.uint8]) -> None:
        """Overwrite all of `view`."""
        block = self.block
        for start in range(0, view.size, block.size):
            view[start : start + block.size] = block[: view.size - start]


@cache
def constant(byte: int) -> Fill:
    """The same byte everywhere: of 0xFF each float is NaN."""
    return Fill(np.full(_WORD_BYTES * _BLOCK_WORDS, byte, np.uint8))


@cache
def _numbers(turn: int) -> Fill:
    count = len(_NUMBER_BYTES)
    words = np.resize(np.roll(np.array(_NUMBER_BYTES, np.uint8), -turn), _BLOCK_WORDS * count)
    return Fill(words.repeat(_WORD_BYTES))


def numbers(turn: int) -> Fill:
    """Numbers of every size and both signs, another one in each word of eight bytes; in the next
    turn each word has the number of the one after it."""
    return _numbers(turn % len(_NUMBER_BYTES))
