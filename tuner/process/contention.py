"""What other processes, and other machines on this host, took of our CPUs: `/proc/stat`.

A probe or a race cannot see from within that it shared its cores. The kernel counts, in ticks,
how long each CPU was busy, and how long a hypervisor gave it to somebody else.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .host import ROOT

_USED = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq; the times of guests are in user
_STEAL = 7
LEAST_SECS = 0.03
"""Each CPU's count is off by up to a tick of 10 ms, and nobody's machine is without a daemon."""

CONTENTION_SHARE = 0.1
"""Of one core: others that take more make a figure of all cores wrong by some percent."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds since boot, summed over some CPUs: used by processes, and stolen by a hypervisor."""

    used_secs: float
    stolen_secs: float


def cpu_times(
    cpus: Iterable[int], root: Path = ROOT, ticks_per_sec: float | None = None
) -> CpuTimes | None:
    """The times of `cpus` now; None where the system does not tell."""
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
    """Asked again and again, says whether others were at work since it was last asked.

    `read` gives the times of the CPUs that matter, `own_secs` the CPU time of this process, all
    threads; `clock` gives seconds.
    """

    read: Callable[[], CpuTimes | None]
    own_secs: Callable[[], float] = time.process_time
    clock: Callable[[], float] = time.monotonic
    _last: tuple[CpuTimes | None, float, float] = field(init=False)

    def __post_init__(self) -> None:
        self._last = self._now()

    def worked(self) -> bool:
        """Whether they took more than `CONTENTION_SHARE` of a core; False where the system does not
        tell."""
        before, last_own, last_clock = self._last
        self._last = now, own, clock = self._now()
        if before is None or now is None:
            return False
        stolen_secs = now.stolen_secs - before.stolen_secs
        others_secs = max(now.used_secs - before.used_secs - (own - last_own), 0.0)
        return others_secs + stolen_secs > max(LEAST_SECS, CONTENTION_SHARE * (clock - last_clock))

    def _now(self) -> tuple[CpuTimes | None, float, float]:
        return self.read(), self.own_secs(), self.clock()
