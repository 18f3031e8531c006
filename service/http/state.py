"""What every route works with: one value, made when the application is built."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anyio import CapacityLimiter

from service.answers.answers import Answers
from service.http.metrics import Metrics
from service.http.waiting import PreparationWatch
from service.limits import Limits
from service.settings import Settings

if TYPE_CHECKING:
    from db import Store


THREADS_AT_ONCE = 4
"""Threads of one interpreter that compute get in each other's way; who waits needs none. Lookups
have their own, so that a long one does not keep single questions waiting."""


@dataclass(slots=True)
class Gate:
    """Counts what is open at once; `enter` says no above `limit`."""

    limit: int
    _open: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self) -> bool:
        with self._lock:
            if self._open >= self.limit:
                return False
            self._open += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._open -= 1


@dataclass(frozen=True, slots=True)
class ServiceState:
    """Settings, store and counters of one running service. `stopping` ends streams and waits."""

    settings: Settings
    store: Store
    metrics: Metrics
    streams: Gate
    stopping: threading.Event
    answers: Answers
    watch: PreparationWatch
    finds: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(THREADS_AT_ONCE))
    lookups: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(THREADS_AT_ONCE))

    @property
    def limits(self) -> Limits:
        return self.settings.limits
