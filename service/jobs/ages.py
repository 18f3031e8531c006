"""How long the oldest open job of each state has been there, whatever happens to the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

Oldest = Mapping[str, tuple[str, datetime]]
"""By state: the id of what has been in it for longest, and when it came."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(slots=True)
class Ages:
    """Seconds since things came: by their time of day when they are first seen, from then on by a
    monotonic clock, so a clock that is set moves no age that is known."""

    clock: Callable[[], float] = time.monotonic
    now: Callable[[], datetime] = _utc_now
    _since: dict[str, float] = field(default_factory=dict)

    def of(self, oldest: Oldest) -> dict[str, float]:
        """Seconds for each state of `oldest`; what is not in it any more is forgotten."""
        moment = self.clock()
        self._since = {
            name: self._since.get(name, moment - max((self.now() - came).total_seconds(), 0.0))
            for name, came in oldest.values()
        }
        return {state: moment - self._since[name] for state, (name, _) in oldest.items()}
