"""Detection of the bytes that single store instructions write, even if their value stays the same.

A thread may load a vector, change its own part and store the whole vector. It then writes the old
values of its neighbour back, which a comparison of memory does not reveal. Therefore pages are made
read-only, so that a store faults. The fault handler inverts the bytes of the page that belong to
other threads, allows the access and sets the trap flag, so that the processor stops after this
instruction. The store wrote those bytes that are no longer inverted. Then the bytes of other
threads are restored, and the page becomes read-only again. Lanes that a mask excludes write
nothing, so there are no false reports.

Only x86 has the trap flag. A signal handler may set it in the context to which it returns. On other
machines nothing is observed. Sources: Intel's manual, volume 1, 6.5.1, and `sigreturn(2)`.
"""

from __future__ import annotations

import ctypes
import platform
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....process import linux

MAX_WINDOWS = 16
SUPPORTED = platform.machine() == "x86_64"
# Offsets in `ucontext_t` on x86-64 Linux. Before the registers are flags and link, and the stack.
# There are 23 registers of 8 bytes.
_FLAGS_AT, _ERROR_AT = 40 + 17 * 8, 40 + 19 * 8
_TRAP, _WRITE = 0x100, 2

STORE_WATCH_IR = f"""
@sw_low = global [{MAX_WINDOWS} x i64] zeroinitializer
@sw_high = global [{MAX_WINDOWS} x i64] zeroinitializer
@sw_mask = global [{MAX_WINDOWS} x i64] zeroinitializer
@sw_held = global [{MAX_WINDOWS} x i64] zeroinitializer
@sw_open = global [{MAX_WINDOWS} x i64] zeroinitializer
@sw_left = global i64 0
@sw_found = global i64 0
declare i32 @mprotect(ptr, i64, i32)

define void @sw_on_fault(i32 %signal, ptr %info, ptr %context) {{
  %address_at = getelementptr i8, ptr %info, i64 16
  %address = load i64, ptr %address_at
  %error_at = getelementptr i8, ptr %context, i64 {_ERROR_AT}
  %error = load i64, ptr %error_at
  %write = and i64 %error, {_WRITE}
  %is_write = icmp ne i64 %write, 0
  br i1 %is_write, label %window, label %real
window:
  %w = phi i64 [ 0, %0 ], [ %w1, %next ]
  %low_at = getelementptr i64, ptr @sw_low, i64 %w
  %high_at = getelementptr i64, ptr @sw_high, i64 %w
  %open_at = getelementptr i64, ptr @sw_open, i64 %w
  %low = load i64, ptr %low_at
  %high = load i64, ptr %high_at
  %above = icmp uge i64 %address, %low
  %below = icmp ult i64 %address, %high
  %inside = and i1 %above, %below
  br i1 %inside, label %allow, label %next
next:
  %w1 = add i64 %w, 1
  %more = icmp ult i64 %w1, {MAX_WINDOWS}
  br i1 %more, label %window, label %real
real:
  call void @on_fault(i32 %signal, ptr %info, ptr %context)
  ret void
allow:
  %page = inttoptr i64 %low to ptr
  %size = sub i64 %high, %low
  call i32 @mprotect(ptr %page, i64 %size, i32 3)
  %mask_at = getelementptr i64, ptr @sw_mask, i64 %w
  %mask_of = load i64, ptr %mask_at
  %nobody = icmp eq i64 %mask_of, 0
  br i1 %nobody, label %all_others, label %some_others
all_others:
  store i64 %address, ptr @sw_found
  br label %end_watch
some_others:
  %left = load i64, ptr @sw_left
  %spent = icmp sle i64 %left, 0
  br i1 %spent, label %end_watch, label %invert
end_watch:
  store i64 0, ptr %low_at
  store i64 0, ptr %high_at
  ret void
invert:
  %left1 = sub i64 %left, 1
  store i64 %left1, ptr @sw_left
  store i64 1, ptr %open_at
  %mask = load ptr, ptr %mask_at
  %held_at = getelementptr i64, ptr @sw_held, i64 %w
  %held = load ptr, ptr %held_at
  %words = lshr i64 %size, 3
  br label %word
word:
  %i = phi i64 [ 0, %invert ], [ %i1, %word ]
  %now_at = getelementptr i64, ptr %page, i64 %i
  %keep_at = getelementptr i64, ptr %held, i64 %i
  %others_at = getelementptr i64, ptr %mask, i64 %i
  %now = load i64, ptr %now_at
  %others = load i64, ptr %others_at
  store i64 %now, ptr %keep_at
  %inverse = xor i64 %now, %others
  store i64 %inverse, ptr %now_at
  %i1 = add i64 %i, 1
  %more_words = icmp ult i64 %i1, %words
  br i1 %more_words, label %word, label %step
step:
  %flags_at = getelementptr i8, ptr %context, i64 {_FLAGS_AT}
  %flags = load i64, ptr %flags_at
  %trapping = or i64 %flags, {_TRAP}
  store i64 %trapping, ptr %flags_at
  ret void
}}

define void @sw_on_step(i32 %signal, ptr %info, ptr %context) {{
  br label %window
window:
  %w = phi i64 [ 0, %0 ], [ %w1, %next ]
  %open_at = getelementptr i64, ptr @sw_open, i64 %w
  %open = load i64, ptr %open_at
  %is_open = icmp ne i64 %open, 0
  br i1 %is_open, label %look, label %next
look:
  store i64 0, ptr %open_at
  %low_at = getelementptr i64, ptr @sw_low, i64 %w
  %high_at = getelementptr i64, ptr @sw_high, i64 %w
  %low = load i64, ptr %low_at
  %high = load i64, ptr %high_at
  %page = inttoptr i64 %low to ptr
  %size = sub i64 %high, %low
  %mask_at = getelementptr i64, ptr @sw_mask, i64 %w
  %mask = load ptr, ptr %mask_at
  %held_at = getelementptr i64, ptr @sw_held, i64 %w
  %held = load ptr, ptr %held_at
  %words = lshr i64 %size, 3
  br label %word
word:
  %i = phi i64 [ 0, %look ], [ %i1, %word ]
  %at = phi i64 [ 0, %look ], [ %at1, %word ]
  %now_at = getelementptr i64, ptr %page, i64 %i
  %keep_at = getelementptr i64, ptr %held, i64 %i
  %others_at = getelementptr i64, ptr %mask, i64 %i
  %now = load i64, ptr %now_at
  %keep = load i64, ptr %keep_at
  %others = load i64, ptr %others_at
  %inverse = xor i64 %keep, %others
  %changed = xor i64 %now, %inverse
  %bad = and i64 %changed, %others
  %is_bad = icmp ne i64 %bad, 0
  %address = ptrtoint ptr %now_at to i64
  %at1 = select i1 %is_bad, i64 %address, i64 %at
  %same = xor i64 %others, -1
  %own = and i64 %now, %same
  %theirs = and i64 %keep, %others
  %back = or i64 %own, %theirs
  store i64 %back, ptr %now_at
  %i1 = add i64 %i, 1
  %more_words = icmp ult i64 %i1, %words
  br i1 %more_words, label %word, label %close
close:
  call i32 @mprotect(ptr %page, i64 %size, i32 1)
  %is_found = icmp ne i64 %at1, 0
  br i1 %is_found, label %found, label %next
found:
  store i64 %at1, ptr @sw_found
  br label %next
next:
  %w1 = add i64 %w, 1
  %more = icmp ult i64 %w1, {MAX_WINDOWS}
  br i1 %more, label %window, label %done
done:
  %flags_at = getelementptr i8, ptr %context, i64 {_FLAGS_AT}
  %flags = load i64, ptr %flags_at
  %going_on = and i64 %flags, {~_TRAP}
  store i64 %going_on, ptr %flags_at
  ret void
}}
"""


@dataclass(frozen=True, slots=True)
class WatchedPages:
    """A range of whole pages whose stores are observed: `size_bytes` bytes from `start` on."""

    start: int
    size_bytes: int
    others: NDArray[np.uint8] | None = None
    """A mask with 0xFF for each byte that must not be written, or None if no byte may be
    written."""


@dataclass(frozen=True)
class StoreWatch:
    """The compiled module of `STORE_WATCH_IR`. Only one call may run at a time."""

    engine: Any

    def foreign_store(
        self, run: Callable[[], None], windows: Sequence[WatchedPages], most_stores: int
    ) -> int | None:
        """Call `run`. Return the address of a word of eight bytes with a forbidden store, or None
        if there is none.

        `windows` are the observed pages, which must not overlap. At most `most_stores` stores to
        windows with `others` are observed. Raise ValueError for more than `MAX_WINDOWS` windows.
        """
        if len(windows) > MAX_WINDOWS:
            raise ValueError(f"at most {MAX_WINDOWS} windows are watched, got {len(windows)}")
        held = [np.empty(0 if w.others is None else w.size_bytes, np.uint8) for w in windows]
        self._word("left").value = most_stores
        found = self._word("found")
        found.value = 0
        self._handle()
        for number, (window, room) in enumerate(zip(windows, held, strict=True)):
            self._word("low", number).value = window.start
            self._word("high", number).value = window.start + window.size_bytes
            others = window.others
            self._word("mask", number).value = 0 if others is None else others.ctypes.data
            self._word("held", number).value = room.ctypes.data
            linux.protect(window.start, window.size_bytes, linux.PROT_READ)
        try:
            run()
        finally:
            for number, window in enumerate(windows):
                self._word("low", number).value = self._word("high", number).value = 0
                access = linux.PROT_READ | linux.PROT_WRITE
                linux.protect(window.start, window.size_bytes, access)
        return found.value or None

    def _handle(self) -> None:
        """Install the handlers. A fault that is not a store to an observed page ends the process as
        usual."""
        address = self.engine.get_function_address
        linux.handle_faults(address("sw_on_fault"), (signal.SIGSEGV,))
        linux.handle_faults(address("sw_on_step"), (signal.SIGTRAP,))

    def _word(self, name: str, number: int = 0) -> ctypes.c_int64:
        start = self.engine.get_global_value_address(f"sw_{name}")
        return ctypes.c_int64.from_address(start + 8 * number)
