"""Two calls of one kernel at the same time, each on arguments of its own."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from .... import timeouts
from .entries import Entry
from .native import Helpers

_TOGETHER_SECS = 2e-3
_MAX_CALLS = 1000
_CHECKS = 8


def call_beside(
    helpers: Helpers,
    entry: Entry,
    argv: Any,
    pointers: Sequence[int],
    secs: float,
    check: Callable[[], None],
) -> None:
    """Call `entry` on `pointers` while another thread calls it on `argv` without a pause.

    A call takes about `secs`: so many are made that both meet in many places, two at least, and
    `check`, which raises if their result is wrong, is asked now and then. What it is asked about
    always had company until its end.
    """
    words = (ctypes.c_int64 * 2)()  # calls the other thread has made, and whether it should stop
    other = threading.Thread(target=helpers.call_until, args=(entry.address, argv, words))
    calls = min(max(2, int(_TOGETHER_SECS / max(secs, 1e-9))), _MAX_CALLS)
    checks = min(_CHECKS, calls)
    with _every_cpu():
        other.start()
        try:
            deadline = time.perf_counter() + timeouts.CONCURRENT_START_SECS
            while not words[0] and time.perf_counter() < deadline:
                time.sleep(0)
            for _ in range(checks):
                for _ in range(calls // checks):
                    entry.call(*pointers)
                check()
        finally:
            words[1] = 1
            other.join()


@contextmanager
def _every_cpu() -> Iterator[None]:
    """Let threads run wherever the system allows: a serial kernel is timed on one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
