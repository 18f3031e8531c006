"""One variant of a kernel that is emitted: which CPU it is for, and by which schedule."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace


@dataclass(frozen=True, slots=True)
class Variant:
    """A schedule and the CPU it is for. `label` names it to people: `x86-64-v3`, `znver5`;
    `record_key` is that of its record, "" for a schedule chosen without measuring."""

    label: str
    trace: Trace
    target: Target
    record_key: str = ""
