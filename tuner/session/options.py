"""The options of a tuning session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from ..process.control import Control
from .report import PreviousTrial, TrialEvent
from .roofline_bound import MeasuringMachine

EventHandler = Callable[[TrialEvent], None]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options that may differ between two runs of the same search.

    - `fresh`: ignore stored records
    - `machine`: is probed again if a kernel beats the bound; None if times are not of this machine
    - `timestamp`: returns the time of day for `created_at`
    - `should_stop`: called after every trial. Once it is true, nothing more is measured, and the
      best so far is confirmed and promoted
    - `control`: the clock of the run. It ends the run with the seconds of its budget, receives
      reports, and can abort the run at any time. Its `pause`, which may wait, is called before each
      batch and before the best is confirmed
    - `previous_trials`: the first trials of this run, reported by an earlier process. Those with
      stored records are entered unchanged, and the search continues from there
    """

    fresh: bool = False
    machine: MeasuringMachine | None = None
    timestamp: Callable[[], str] = lambda: datetime.now(UTC).isoformat(timespec="milliseconds")
    should_stop: Callable[[], bool] = lambda: False
    control: Control = field(default_factory=Control)
    previous_trials: Sequence[PreviousTrial] = ()
