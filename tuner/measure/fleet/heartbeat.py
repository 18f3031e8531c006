"""Detection of machines without a heartbeat: without power, without network, or frozen.

A scheduler lists them until its own timeout: 20 s with this project's configuration, 300 s with
Dask's default. Machines send heartbeats twice per second (every two seconds in a fleet of
hundreds), even while they measure. A silent machine gets no requests until its heartbeat returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ... import timeouts


@dataclass(slots=True)
class HeartbeatMonitor:
    """The ages of heartbeats by this process's clock. Time without calls of `of` does not count."""

    _heard: dict[str, tuple[float, float]] = field(default_factory=dict)
    _looked: float = float("-inf")

    def of(self, identity: Mapping[str, Any], now: float) -> set[str]:
        """Return the addresses of the silent workers in `identity`, which a scheduler returned at
        `now`."""
        gap = now - self._looked > timeouts.HEARTBEAT_GAP_SECS
        heard: dict[str, tuple[float, float]] = {}
        for address, worker in identity.get("workers", {}).items():
            seen = float(worker.get("last_seen", 0.0))
            before, at = self._heard.get(address, (None, now))
            was_silent = before == seen and self._looked - at >= timeouts.SILENT_SECS
            heard[address] = (seen, at if before == seen and (was_silent or not gap) else now)
        self._heard, self._looked = heard, now
        return {address for address, (_, at) in heard.items() if now - at >= timeouts.SILENT_SECS}
