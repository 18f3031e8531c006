"""Machines that are still listed and have fallen silent: power lost, a cable pulled, frozen.

A scheduler lists them until its own patience ends (20 s with ours, 300 with Dask's). Each machine
tells it twice a second that it lives, every two seconds in a fleet of hundreds, whatever it is
measuring; so a machine that was not heard for
`timeouts.SILENT_SECS` gets no orders, and what it had goes to others. One that is heard again takes
part again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ... import timeouts


@dataclass(slots=True)
class HeartbeatMonitor:
    """How long each machine has said nothing, by this process's clock alone: those of other
    machines may be wrong. It counts only while somebody looks."""

    _heard: dict[str, tuple[float, float]] = field(default_factory=dict)
    _looked: float = float("-inf")

    def of(self, identity: Mapping[str, Any], now: float) -> set[str]:
        """The silent ones among the workers of a scheduler's `identity`, got at `now`."""
        gap = now - self._looked > timeouts.HEARTBEAT_GAP_SECS
        heard: dict[str, tuple[float, float]] = {}
        for address, worker in identity.get("workers", {}).items():
            told = float(worker.get("last_seen", 0.0))
            before, at = self._heard.get(address, (None, now))
            was_silent = before == told and self._looked - at >= timeouts.SILENT_SECS
            heard[address] = (told, at if before == told and (was_silent or not gap) else now)
        self._heard, self._looked = heard, now
        return {address for address, (_, at) in heard.items() if now - at >= timeouts.SILENT_SECS}
