"""A cache with a limit on its size in bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

ENTRY_BYTES = 300
"""Approximate overhead of an entry in bytes."""


class BoundedCache(Generic[K, V]):
    """Values by key; the least recently used are dropped first. Thread-safe. `size_bytes` limits
    the sum of the sizes that callers pass to `put`."""

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._used_bytes = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, value_bytes: int) -> None:
        """Store `value`, of about `value_bytes`, and replace an older one."""
        taken = value_bytes + ENTRY_BYTES
        with self._lock:
            known = self._entries.pop(key, None)
            self._used_bytes -= known[1] if known is not None else 0
            self._entries[key] = value, taken
            self._used_bytes += taken
            while self._used_bytes > self._size_bytes and self._entries:
                _, (_, freed) = self._entries.popitem(last=False)
                self._used_bytes -= freed

    def __len__(self) -> int:
        return len(self._entries)
