"""One variant of an emitted kernel: its schedule and its CPU."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace


@dataclass(frozen=True, slots=True)
class Variant:
    """A schedule and the CPU that it is compiled for."""

    label: str
    """A readable name, such as `x86-64-v3` or `znver5`."""
    trace: Trace
    target: Target
    record_key: str = ""
    """The key of the schedule's record, or "" if the schedule was chosen without measurement."""
