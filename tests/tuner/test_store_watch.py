"""Single stores to watched pages: which bytes they write, whatever these held before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.tuner.planted_kernels import c_object
from tilewright.tuner.backend.cpu.checker.races import Borders
from tilewright.tuner.backend.cpu.loading.loader import LoadedKernel, load_object
from tilewright.tuner.backend.cpu.loading.native import Helpers, build_helpers
from tilewright.tuner.backend.cpu.loading.store_watch import (
    MAX_WINDOWS,
    SUPPORTED,
    StoreWatch,
    WatchedPages,
)
from tilewright.tuner.backend.cpu.memory.guarded import Flush, GuardedBuffer, guarded
from tilewright.tuner.process import linux

pytestmark = pytest.mark.skipif(not SUPPORTED, reason="stores are watched on x86-64")
PAGE = linux.PAGE_BYTES

# b[first..end) is written, and b[back] read and written again, if that is not negative.
COPIES = """
const long *p = (const long *)a; volatile float *out = b;
for (long i = p[0]; i < p[1]; i++) out[i] = 1;
if (p[2] >= 0) { float x = out[p[2]]; out[p[2]] = x; }"""


@pytest.fixture(scope="module")
def helpers() -> Helpers:
    return build_helpers(3, 8, 0)


@pytest.fixture
def watch(helpers: Helpers) -> StoreWatch:
    assert helpers.store_watch is not None
    return helpers.store_watch


@pytest.fixture
def buffer() -> GuardedBuffer:
    return guarded("b", 3 * PAGE, Flush.LEFT)


def call_of(
    kernel: LoadedKernel, buffer: GuardedBuffer, first: int, end: int, back: int
) -> Callable[[], None]:
    numbers = np.array([first, end, back], np.int64)
    call = kernel.caller(3)
    return lambda: (call(numbers.ctypes.data, buffer.address, 0), None)[1]


def window(buffer: GuardedBuffer, number: int, others: slice | None) -> WatchedPages:
    if others is None:
        return WatchedPages(buffer.start + number * PAGE, PAGE)
    mask = np.zeros(PAGE, np.uint8)
    mask[others] = 0xFF
    return WatchedPages(buffer.start + number * PAGE, PAGE, mask)


@pytest.mark.parametrize("back", [-1, 149, 150, 199, 200])
def test_a_store_of_what_was_there_is_seen_where_it_is_another_s(
    watch: StoreWatch, buffer: GuardedBuffer, back: int
) -> None:
    kernel = load_object(c_object(COPIES), "kernel")
    view = buffer.view().view(np.float32)
    view[:] = 7
    windows = [window(buffer, 0, slice(600, 800))]  # 150 to 199
    found = watch.foreign_store(call_of(kernel, buffer, 0, 150, back), windows, 1000)
    expected = back - back % 2 if 150 <= back < 200 else None  # words of eight bytes
    assert found == (None if expected is None else buffer.address + 4 * expected)
    assert (view[:150] == 1).all()
    assert (view[150:] == 7).all()


def test_pages_that_are_another_s_alone_are_watched_as_a_whole(
    watch: StoreWatch, buffer: GuardedBuffer
) -> None:
    kernel = load_object(c_object(COPIES), "kernel")
    windows = [window(buffer, 1, None), window(buffer, 2, None)]
    assert watch.foreign_store(call_of(kernel, buffer, 0, 1024, -1), windows, 0) is None
    assert watch.foreign_store(call_of(kernel, buffer, 0, 1024, 1030), windows, 0) == (
        buffer.address + 4 * 1030
    )


def test_only_so_many_stores_are_watched(watch: StoreWatch, buffer: GuardedBuffer) -> None:
    kernel = load_object(c_object(COPIES), "kernel")
    windows = [window(buffer, 0, slice(600, 800))]
    run = call_of(kernel, buffer, 0, 100, 150)
    assert watch.foreign_store(run, windows, 50) is None
    assert watch.foreign_store(run, windows, 101) == buffer.address + 600
    buffer.view()[:] = 3  # writable again


def test_there_is_room_for_so_many_windows(watch: StoreWatch, buffer: GuardedBuffer) -> None:
    with pytest.raises(ValueError, match="at most 16 windows are watched, got 17"):
        watch.foreign_store(lambda: None, [window(buffer, 0, None)] * (MAX_WINDOWS + 1), 1)


def test_borders_are_where_bytes_of_two_shares_follow_each_other() -> None:
    owner = np.array([0, 1, 1, 2, 2, 0, 1, 1, 0, 1, 3], np.uint8)
    borders = Borders.of(owner)
    assert borders.left.tolist() == [2, 4, 9]
    assert borders.right.tolist() == [3, 6, 10]
    assert Borders.of(np.zeros(4, np.uint8)).left.size == 0
    assert Borders.of(np.zeros(0, np.uint8)).left.size == 0


def test_windows_of_a_share_are_its_borders_and_what_is_others_alone(
    buffer: GuardedBuffer,
) -> None:
    view = buffer.view()
    owner = np.ones(view.size, np.uint8)
    owner[1000:] = 2
    mixed, alone = Borders.of(owner).windows(view, owner, 0, 8)
    assert (mixed.start, mixed.size_bytes) == (buffer.start, PAGE)
    assert mixed.others is not None
    assert np.flatnonzero(mixed.others).tolist() == list(range(1000, PAGE))
    assert (alone.start, alone.size_bytes, alone.others) == (buffer.start + PAGE, 2 * PAGE, None)
    (other,) = Borders.of(owner).windows(view, owner, 1, 8)
    assert other.others is not None
    assert np.flatnonzero(other.others).tolist() == list(range(1000))
