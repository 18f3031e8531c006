"""A bounded memory of what was worked out before."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

ENTRY_BYTES = 300
"""About what an entry takes beside what it holds."""


class BoundedCache(Generic[K, V]):
    """Values by key; what was not used for longest goes first. Threads may share it.

    `size_bytes` bounds the sum of what callers say their values take.
    """

    def __init__(self, size_bytes: int) -> None:
        self._size_bytes = size_bytes
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._held_bytes = 0
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._held.get(key)
            if found is None:
                return None
            self._held.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, value_bytes: int) -> None:
        """Remember `value`, of about `value_bytes`, in place of an older one."""
        taken = value_bytes + ENTRY_BYTES
        with self._lock:
            known = self._held.pop(key, None)
            self._held_bytes -= known[1] if known is not None else 0
            self._held[key] = value, taken
            self._held_bytes += taken
            while self._held_bytes > self._size_bytes and self._held:
                _, (_, freed) = self._held.popitem(last=False)
                self._held_bytes -= freed

    def __len__(self) -> int:
        return len(self._held)
