"""Concurrent calls of one kernel by two threads, each with separate arguments."""

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

_OVERLAP_SECS = 2e-3
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

    A call takes about `secs`. At least two calls are made, and enough calls to overlap at many
    points. Between calls, `check` raises an error if the result is wrong.
    """
    words = (ctypes.c_int64 * 2)()  # number of calls of the other thread; and 1 if it must stop
    other = threading.Thread(target=helpers.call_until, args=(entry.address, argv, words))
    calls = min(max(2, int(_OVERLAP_SECS / max(secs, 1e-9))), _MAX_CALLS)
    checks = min(_CHECKS, calls)
    with _on_all_cpus():
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
def _on_all_cpus() -> Iterator[None]:
    """Allow threads on all CPUs during the block, because the process of a serial kernel is bound
    to one CPU."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
