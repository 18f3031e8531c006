"""When a client tries again, and for how long."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tilewright.service import timeouts
from tilewright.service.errors import Refused, Unreachable

RETRY_STATUSES = frozenset({429, 502, 503, 504})
"""The service asks to come back, or a proxy finds no service behind it, as while one starts again.
Every request may be sent twice: submissions carry a key, the others change nothing or are
idempotent."""


def may_recover(error: Unreachable | Refused) -> bool:
    """Whether a service that is about to start again fails like this."""
    return isinstance(error, Unreachable) or error.status in RETRY_STATUSES


def pause_secs(attempt: int, retry_after: str = "") -> float:
    """`Retry-After` where given, else doubling from 0.2 s; random, so that clients spread out."""
    requested = _retry_after_secs(retry_after)
    if requested is not None:
        return requested * (1 + 0.1 * random.random())
    return min(0.2 * 2.0**attempt, timeouts.CLIENT_PAUSE_MAX_SECS) * (0.5 + random.random())


def _retry_after_secs(text: str) -> float | None:
    """Seconds, or the time to a date; None for neither."""
    if text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)


class Outage:
    """How long a service may be away: for `tries` failures where it never answered, else for
    `CLIENT_OUTAGE_SECS`, since it may be starting again."""

    def __init__(self, tries: int, clock: Callable[[], float]) -> None:
        self._tries = tries
        self._clock = clock
        self._has_answered = False
        self._since: float | None = None
        self.failures = 0

    def end(self) -> None:
        """The service answered."""
        self._has_answered, self._since, self.failures = True, None, 0

    def lasts_too_long(self) -> bool:
        """Count one more failure; whether to give up."""
        self.failures += 1
        if not self._has_answered:
            return self.failures > self._tries
        now = self._clock()
        if self._since is None:
            self._since = now
        return now - self._since > timeouts.CLIENT_OUTAGE_SECS
