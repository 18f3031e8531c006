"""Which bytes of a buffer have changed: one native pass over the memory, one bit per byte."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....arrays import address_of

BLOCK_BYTES = 64  # compared at once
_CHUNK_BYTES = 1 << 16

CHANGES_IR = f"""
define void @note_changes(ptr %now, ptr %before, i64 %size, i64 %period, i64 %update,
                          ptr %bits, ptr %touched) {{
entry:
  %updates = icmp ne i64 %update, 0
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %p = phi i64 [ 0, %entry ], [ %p2, %next ]
  %i1 = add i64 %i, {BLOCK_BYTES}
  %whole = icmp ule i64 %i1, %size
  br i1 %whole, label %block, label %rest
block:
  %now_at = getelementptr i8, ptr %now, i64 %i
  %before_at = getelementptr i8, ptr %before, i64 %p
  %a = load <{BLOCK_BYTES} x i8>, ptr %now_at, align 1
  %b = load <{BLOCK_BYTES} x i8>, ptr %before_at, align 1
  %differ = icmp ne <{BLOCK_BYTES} x i8> %a, %b
  %mask = bitcast <{BLOCK_BYTES} x i1> %differ to i64
  %any = icmp ne i64 %mask, 0
  br i1 %any, label %changed, label %next
changed:
  %word = lshr i64 %i, 6
  %bits_at = getelementptr i64, ptr %bits, i64 %word
  %old = load i64, ptr %bits_at
  %new = or i64 %old, %mask
  store i64 %new, ptr %bits_at
  %chunk = lshr i64 %i, 16
  %touched_at = getelementptr i8, ptr %touched, i64 %chunk
  store i8 1, ptr %touched_at
  br i1 %updates, label %copy, label %next
copy:
  store <{BLOCK_BYTES} x i8> %a, ptr %before_at, align 1
  br label %next
next:
  %p1 = add i64 %p, {BLOCK_BYTES}
  %wraps = icmp uge i64 %p1, %period
  %wrapped = sub i64 %p1, %period
  %p2 = select i1 %wraps, i64 %wrapped, i64 %p1
  br label %loop
rest:
  %j = phi i64 [ %i, %loop ], [ %j1, %rest_next ]
  %q = phi i64 [ %p, %loop ], [ %q1, %rest_next ]
  %left = icmp ult i64 %j, %size
  br i1 %left, label %byte, label %done
byte:
  %now_byte_at = getelementptr i8, ptr %now, i64 %j
  %before_byte_at = getelementptr i8, ptr %before, i64 %q
  %c = load i8, ptr %now_byte_at
  %d = load i8, ptr %before_byte_at
  %same = icmp eq i8 %c, %d
  br i1 %same, label %rest_next, label %byte_changed
byte_changed:
  %byte_word = lshr i64 %j, 6
  %byte_bit = and i64 %j, 63
  %one = shl i64 1, %byte_bit
  %byte_bits_at = getelementptr i64, ptr %bits, i64 %byte_word
  %byte_old = load i64, ptr %byte_bits_at
  %byte_new = or i64 %byte_old, %one
  store i64 %byte_new, ptr %byte_bits_at
  %byte_chunk = lshr i64 %j, 16
  %byte_touched_at = getelementptr i8, ptr %touched, i64 %byte_chunk
  store i8 1, ptr %byte_touched_at
  br i1 %updates, label %byte_copy, label %rest_next
byte_copy:
  store i8 %c, ptr %before_byte_at
  br label %rest_next
rest_next:
  %j1 = add i64 %j, 1
  %q1 = add i64 %q, 1
  br label %rest
done:
  ret void
}}
"""


@dataclass(frozen=True, slots=True)
class ByteSet:
    """A set of bytes of a buffer of `size_bytes`, by their offsets."""

    size_bytes: int
    bits: NDArray[np.uint64]
    """One bit for each byte, the lowest bit first."""
    touched: NDArray[np.uint8]
    """1 for each chunk of the buffer that has bytes of the set."""

    @classmethod
    def empty(cls, size_bytes: int) -> ByteSet:
        return cls(
            size_bytes,
            np.zeros(-(-size_bytes // BLOCK_BYTES), np.uint64),
            np.zeros(-(-size_bytes // _CHUNK_BYTES), np.uint8),
        )

    def first_common(self, other: ByteSet) -> int | None:
        """Return a byte that is in both sets, or None. Both are sets of the same buffer."""
        words = _CHUNK_BYTES // BLOCK_BYTES
        for chunk in np.flatnonzero(self.touched & other.touched).tolist():
            part = slice(chunk * words, (chunk + 1) * words)
            both = self.bits[part] & other.bits[part]
            if both.any():
                return chunk * _CHUNK_BYTES + int(_mask(both).argmax())
        return None

    def add(self, other: ByteSet) -> None:
        """Add the bytes of `other`, a set of the same buffer."""
        words = _CHUNK_BYTES // BLOCK_BYTES
        for chunk in np.flatnonzero(other.touched).tolist():
            part = slice(chunk * words, (chunk + 1) * words)
            self.bits[part] |= other.bits[part]
        np.bitwise_or(self.touched, other.touched, out=self.touched)

    def mask(self) -> NDArray[np.bool_]:
        """Return for each byte of the buffer whether it is in the set."""
        return _mask(self.bits)[: self.size_bytes]


def _mask(bits: NDArray[np.uint64]) -> NDArray[np.bool_]:
    return np.unpackbits(bits.view(np.uint8), bitorder="little").view(np.bool_)


@dataclass(frozen=True)
class ByteChanges:
    """The compiled function of `CHANGES_IR`."""

    _note: Callable[..., None]

    def against_copy(self, now: NDArray[np.uint8], copy: NDArray[np.uint8], found: ByteSet) -> None:
        """Add the bytes of `now` that differ from `copy` to `found`, and copy them to `copy`."""
        self._call(now, copy, now.size + BLOCK_BYTES, found, update=True)

    def against_fill(
        self, now: NDArray[np.uint8], fill: NDArray[np.uint8], period: int, found: ByteSet
    ) -> None:
        """Add the bytes of `now` that differ from a fill to `found`. `fill` has the `period` bytes
        that are repeated, and the first `BLOCK_BYTES` of them once more."""
        self._call(now, fill, period, found, update=False)

    def _call(
        self,
        now: NDArray[np.uint8],
        before: NDArray[np.uint8],
        period: int,
        found: ByteSet,
        *,
        update: bool,
    ) -> None:
        if now.size:
            bits, touched = address_of(found.bits), address_of(found.touched)
            places = address_of(now), address_of(before)
            self._note(*places, now.size, period, int(update), bits, touched)


def byte_changes(engine: Any) -> ByteChanges:
    """Return the function in `engine`, which contains the code of `CHANGES_IR` and must outlive
    it."""
    void, i64 = ctypes.c_void_p, ctypes.c_int64
    kind = ctypes.CFUNCTYPE(None, void, void, i64, i64, i64, void, void)
    return ByteChanges(kind(engine.get_function_address("note_changes")))
