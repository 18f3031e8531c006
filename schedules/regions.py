"""What a parallel region may cost beyond what one measurement of it shows.

At its start and its end threads hand each other some six cache lines. What that takes depends on
which cores they run on, and virtual machines are dealt other cores several times a second, whenever
they rest: 0.45 to 0.55 us a region or 1.2 to 1.4 us, on the same machine in the same minute. A
kernel that is timed for some hundredths of a second meets one of the two and keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .record import TuningRecord

REGION_DOUBT_SECS = 0.8e-6
"""Between the two."""


def regions_entered(trace: Sequence[Any]) -> int:
    """Parallel loops of a trace, as JSON data: the regions a call enters, at least."""
    return sum(isinstance(step, dict) and step.get("do") == "Parallel" for step in trace)


def relied_on_secs(trace: Sequence[Any], run_secs: float) -> float:
    """Seconds a call of a kernel that took `run_secs`, wherever its threads run: what kernels are
    chosen by, so that threads are used where they pay for sure."""
    return run_secs + REGION_DOUBT_SECS * regions_entered(trace)


def relied_on(record: TuningRecord) -> float:
    """That of a record; infinite where it holds no time."""
    secs = record.result.run_secs_estimate
    if not record.result.ok or secs is None:
        return float("inf")
    return relied_on_secs(record.trace, secs)
