"""Fills of unwritten memory. A kernel that reads them gives a wrong result."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

_WORD_BYTES = 8
_BLOCK_WORDS = 8 * 1024
_NUMBER_BYTES = (0x7B, 0xFB, 0x00, 0x3B, 0x80, 0xBB, 0x55)
"""Bytes that form a number in every type if they are repeated.

As floats the numbers are large, very negative, zero, small positive, tiny negative, small negative
and large. As integers they differ as much. Some of them change the result of every accumulation,
because no operation ignores all of them.
"""


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
    """Return a fill of equal bytes. 0xFF makes each float a NaN."""
    return Fill(np.full(_WORD_BYTES * _BLOCK_WORDS, byte, np.uint8))


@cache
def _many_numbers() -> NDArray[np.uint8]:
    """Return the bytes of `numbers` for every turn. Each turn begins one word later."""
    count = len(_NUMBER_BYTES)
    words = np.tile(np.array(_NUMBER_BYTES, np.uint8), _BLOCK_WORDS + 1)[:-1]
    assert words.size == _BLOCK_WORDS * count + count - 1
    return words.repeat(_WORD_BYTES)


def numbers(turn: int) -> Fill:
    """Return a fill of numbers of all magnitudes and both signs.

    Neighbouring words of eight bytes differ. Each value of `turn` shifts the numbers by one word.
    """
    count = len(_NUMBER_BYTES)
    start = turn % count * _WORD_BYTES
    return Fill(_many_numbers()[start : start + _WORD_BYTES * _BLOCK_WORDS * count])
