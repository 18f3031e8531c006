"""Limits per owner: token buckets for rates, and counts of simultaneous requests."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

OWNERS_KEPT = 10_000


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled_at: float


class RateLimiter:
    """A token bucket per owner: `per_sec` requests per second, with bursts of up to `burst`
    requests. Each process counts separately, so an owner has this rate at each replica."""

    def __init__(
        self, per_sec: float, burst: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_sec = per_sec
        self._burst = float(burst)
        self._clock = clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, owner: str) -> float:
        """Admit a request of `owner` and return 0.0, or return the seconds after which one is
        admitted."""
        now = self._clock()
        bucket = self._buckets.get(owner)
        if bucket is None:
            bucket = self._buckets[owner] = _Bucket(self._burst, now)
            if len(self._buckets) > OWNERS_KEPT:
                self._buckets.popitem(last=False)
        self._buckets.move_to_end(owner)
        filled = bucket.tokens + (now - bucket.filled_at) * self._per_sec
        bucket.tokens, bucket.filled_at = min(self._burst, filled), now
        if bucket.tokens < 1.0:
            return (1.0 - bucket.tokens) / self._per_sec
        bucket.tokens -= 1.0
        return 0.0


class OwnerConcurrencyLimits:
    """Limits the simultaneous requests of each owner to `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._open: dict[str, int] = {}
        self._lock = threading.Lock()

    @contextmanager
    def admitted(self, owner: str) -> Iterator[bool]:
        """Admit one more request until the end of the block. Yield whether it was admitted."""
        with self._lock:
            there = self._open.get(owner, 0)
            enters = there < self.limit
            if enters:
                self._open[owner] = there + 1
        try:
            yield enters
        finally:
            if enters:
                with self._lock:
                    self._open[owner] -= 1
                    if not self._open[owner]:
                        del self._open[owner]


def retry_after_secs(wait_secs: float) -> int:
    """Return `wait_secs` as whole seconds, at least one, for `Retry-After`."""
    return max(1, math.ceil(wait_secs))
