"""The CPU time that other processes and other virtual machines used, from `/proc/stat`.

A probe or a timing race cannot detect that other programs used its cores. Linux counts, in ticks,
how long each CPU was busy, and how long a hypervisor gave it to another machine.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .host import ROOT

_USED = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq. User times include the times of guests.
_STEAL = 7
MIN_CONTENTION_SECS = 0.03
"""A shorter time is not contention. Counts may be wrong by a tick of 10 ms, and there are always
daemons."""

CONTENTION_SHARE = 0.1
"""A fraction of one core. More contention makes a rate of all cores wrong by several percent."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds since boot, summed over some CPUs."""

    used_secs: float
    """Time used by processes."""
    stolen_secs: float
    """Time that a hypervisor gave to other machines."""


def cpu_times(
    cpus: Iterable[int], root: Path = ROOT, ticks_per_sec: float | None = None
) -> CpuTimes | None:
    """Return the used and stolen seconds of `cpus` together, or None if the system does not report
    them."""
    wanted = set(cpus)
    ticks_per_sec = ticks_per_sec or os.sysconf("SC_CLK_TCK")
    try:
        text = (root / "proc/stat").read_text()
    except (OSError, UnicodeDecodeError):
        return None
    used = stolen = 0
    found = False
    for number, rest in re.findall(r"^cpu(\d+) ([\d ]+)$", text, re.MULTILINE):
        fields = [int(word) for word in rest.split()]
        if int(number) in wanted and len(fields) > _STEAL:
            found = True
            used += sum(fields[i] for i in _USED)
            stolen += fields[_STEAL]
    return CpuTimes(used / ticks_per_sec, stolen / ticks_per_sec) if found else None


@dataclass
class ContentionMonitor:
    """Detects whether other processes used the CPUs since the last call.

    `read` returns the times of the CPUs. `own_secs` returns the CPU time of this process, and
    `clock` the wall time, both in seconds.
    """

    read: Callable[[], CpuTimes | None]
    own_secs: Callable[[], float] = time.process_time
    clock: Callable[[], float] = time.monotonic
    _last: tuple[CpuTimes | None, float, float] = field(init=False)

    def __post_init__(self) -> None:
        self._last = self._now()

    def contended(self) -> bool:
        """Return whether others used more than `CONTENTION_SHARE` of a core since the last call.
        Return False if that is unknown."""
        before, last_own, last_clock = self._last
        self._last = now, own, clock = self._now()
        if before is None or now is None:
            return False
        stolen_secs = now.stolen_secs - before.stolen_secs
        others_secs = max(now.used_secs - before.used_secs - (own - last_own), 0.0)
        return others_secs + stolen_secs > max(
            MIN_CONTENTION_SECS, CONTENTION_SHARE * (clock - last_clock)
        )

    def _now(self) -> tuple[CpuTimes | None, float, float]:
        return self.read(), self.own_secs(), self.clock()
