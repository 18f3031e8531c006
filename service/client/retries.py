"""Retries of a client: whether to retry, and when."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tilewright.service import timeouts
from tilewright.service.errors import Refused, Unreachable

RETRY_STATUSES = frozenset({429, 502, 503, 504})
"""Statuses after which a request is sent again: the service requests a retry, or a proxy finds no
service, as during a restart. Submissions have a key, and all other requests are idempotent."""


def may_recover(error: Unreachable | Refused) -> bool:
    """Return whether this error can occur because the service restarts."""
    return isinstance(error, Unreachable) or error.status in RETRY_STATUSES


def pause_secs(attempt: int, retry_after: str = "") -> float:
    """Return the seconds until the next attempt: `retry_after` if given, otherwise 0.2 s, doubled
    after each attempt. A random factor spreads the requests of several clients."""
    requested = _retry_after_secs(retry_after)
    if requested is not None:
        return requested * (1 + 0.1 * random.random())
    return min(0.2 * 2.0**attempt, timeouts.CLIENT_PAUSE_MAX_SECS) * (0.5 + random.random())


def _retry_after_secs(text: str) -> float | None:
    """Parse a number of seconds, or a date, as seconds from now. Return None if `text` is
    neither."""
    if text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


class Outage:
    """Limits how long a service may be unreachable: by `tries` failures if it never responded,
    otherwise by `CLIENT_OUTAGE_SECS`, because it may be restarting."""

    def __init__(self, tries: int, clock: Callable[[], float]) -> None:
        self._tries = tries
        self._clock = clock
        self._has_answered = False
        self._since: float | None = None
        self.failures = 0

    def end(self) -> None:
        """Record that the service responded."""
        self._has_answered, self._since, self.failures = True, None, 0

    def lasts_too_long(self) -> bool:
        """Count one more failure. Return whether to give up."""
        self.failures += 1
        if not self._has_answered:
            return self.failures > self._tries
        now = self._clock()
        if self._since is None:
            self._since = now
        return now - self._since > timeouts.CLIENT_OUTAGE_SECS
