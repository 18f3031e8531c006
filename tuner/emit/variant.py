"""One variant of an emitted kernel: its schedule and its CPU."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace


@dataclass(frozen=True, slots=True)
class Variant:
    """A schedule and its CPU. `label` is a readable name such as `x86-64-v3` or `znver5`.
    `record_key` is the key of the schedule's record, or "" if the schedule was chosen without
    measurement."""

    label: str
    trace: Trace
    target: Target
    record_key: str = ""
