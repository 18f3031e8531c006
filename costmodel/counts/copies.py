"""Bytes of private copies: the total, the part of each kind of copy, and the largest buffer."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tilewright.schedules.memory_use import PrivateCopy

from .table import Counts


def copied_bytes(copies: Iterable[PrivateCopy], settings: int) -> Counts:
    """Return the counts of bytes of `copies` for `settings` settings."""
    packed, gathered, transposed, fused, collected, largest = np.zeros((6, settings))
    for copy in copies:
        written = copy.bytes * copy.times
        packed += written
        gathered += copy.gathered_bytes * copy.times
        transposed += written * copy.is_transposed
        fused += written * copy.is_fused
        collected += written * copy.collects
        size = copy.bytes if copy.buffer_bytes is None else copy.buffer_bytes
        largest = np.maximum(largest, size)
    return {
        "packed_bytes": packed,
        "strided_packed_bytes": gathered,
        "transposed_packed_bytes": transposed,
        "fused_packed_bytes": fused,
        "collected_bytes": collected,
        "panel_bytes": largest,
    }
