"""Guarded buffers lie where they should, and say in words what an address means."""

from __future__ import annotations

import ctypes
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.tuner.backend.cpu.memory.guarded import GUARD_BYTES, Flush, GuardedPool, guarded
from tilewright.tuner.process import linux

PAGE = linux.PAGE_BYTES
GUARD = 4 * PAGE


@given(
    size_bytes=st.integers(0, 3 * PAGE),
    align_bytes=st.sampled_from([1, 4, 8, 64]),
    flush=st.sampled_from(Flush),
)
def test_a_buffer_is_flush_with_its_guard_and_aligned(
    size_bytes: int, align_bytes: int, flush: Flush
) -> None:
    buffer = guarded("B", size_bytes, flush, align_bytes, GUARD)
    end, pages_end = buffer.address + size_bytes, buffer.start + buffer.pages_bytes
    assert buffer.address % align_bytes == 0
    assert buffer.start <= buffer.address
    assert end <= pages_end
    if flush is Flush.LEFT:
        assert buffer.address == buffer.start
    else:
        assert pages_end - end < align_bytes
    buffer.view().fill(7)
    buffer.free()


@pytest.mark.parametrize("flush", Flush)
@pytest.mark.parametrize("size_bytes", [1, 100, PAGE - 1, PAGE, PAGE + 4])
def test_only_its_own_bytes_may_change(flush: Flush, size_bytes: int) -> None:
    buffer = guarded("B", size_bytes, flush, 4 if size_bytes % 4 == 0 else 1, GUARD)
    buffer.set_canary()
    buffer.view().fill(0)
    assert buffer.broken_canary() is None
    buffer.free()


def test_a_broken_canary_says_where() -> None:
    left = guarded("B", 100, Flush.LEFT, guard_bytes=GUARD)
    left.set_canary()
    wide = guarded("B", 100, Flush.RIGHT, guard_bytes=GUARD)
    wide.set_canary()
    _write(left.address + 104, 1)
    _write(wide.address - 8, 1)
    assert left.broken_canary() == "4 bytes past the end of B"
    assert wide.broken_canary() == "8 bytes before the start of B"
    left.free()
    wide.free()


def test_addresses_are_explained() -> None:
    buffer = guarded("B", 100, Flush.RIGHT, guard_bytes=GUARD)
    end = buffer.address + 100
    assert buffer.describe(end) == "0 bytes past the end of B"
    assert buffer.describe(end + GUARD - 1) == f"{GUARD - 1} bytes past the end of B"
    assert buffer.describe(end + GUARD) is None
    assert buffer.describe(buffer.start - 1) == f"{PAGE - 99} bytes before the start of B"
    assert buffer.describe(buffer.start - GUARD - 1) is None
    assert buffer.describe(buffer.address) == "a write to B, which is an input"
    buffer.free()


def test_reservations_keep_clear_of_loaded_code_and_of_each_other() -> None:
    code = ctypes.cast(linux.libc().mmap, ctypes.c_void_p).value or 0
    places = [linux.reserve(1 << 31) for _ in range(3)]
    assert len(set(places)) == 3
    assert all(abs(place - code) > 1 << 40 for place in places)
    for place in places:
        linux.release(place, 1 << 31)
    assert linux.reserve(4096) == places[0]
    linux.release(places[0], 4096)


@pytest.mark.parametrize("offset", [-1, 100, 100 + GUARD // 2])
@pytest.mark.parametrize("writable", [True, False])
def test_a_touch_outside_or_a_forbidden_write_kills(offset: int, writable: bool) -> None:
    flush = Flush.LEFT if offset < 0 else Flush.RIGHT
    buffer = guarded("B", 100, flush, guard_bytes=GUARD)
    buffer.protect(writable=writable)
    pid = os.fork()
    if pid == 0:
        import faulthandler

        faulthandler.disable()
        _write(buffer.address + (offset if writable else 50), 1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    buffer.free()


def _write(address: int, value: int) -> None:
    ctypes.c_uint8.from_address(address).value = value


@given(
    uses=st.lists(
        st.tuples(st.integers(0, 2 * PAGE), st.sampled_from(Flush), st.sampled_from([0, 4])),
        min_size=1,
        max_size=6,
    )
)
def test_a_buffer_that_is_used_again_lies_as_a_new_one_would(
    uses: list[tuple[int, Flush, int]],
) -> None:
    pool = GuardedPool()
    pages: dict[int, int] = {}
    for size_bytes, flush, skip_bytes in uses:
        buffer = pool.acquire("B", size_bytes, flush, skip_bytes=skip_bytes)
        fresh = guarded("B", size_bytes, flush, guard_bytes=GUARD, skip_bytes=skip_bytes)
        assert buffer.address - buffer.start == fresh.address - fresh.start
        assert buffer.pages_bytes == fresh.pages_bytes
        assert pages.setdefault(buffer.pages_bytes, buffer.start) == buffer.start
        fresh.free()
        buffer.protect(writable=False)
        pool.release(buffer)
        again = pool.acquire("C", size_bytes, flush, skip_bytes=skip_bytes)
        again.view().fill(1)  # writable again
        pool.release(again)
    for pages_bytes, start in pages.items():
        linux.release(start - GUARD_BYTES, pages_bytes + 2 * GUARD_BYTES)
