"""The options of a tuning session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tilewright.schedules.trace import Trace

from ..process.control import Control
from .report import PreviousTrial, TrialEvent
from .roofline_bound import MeasuringMachine

EventHandler = Callable[[TrialEvent], None]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """The options that may differ between two runs of the same search.

    `fresh` ignores stored records. `machine` is probed again if a kernel beats the bound; None if
    times come from another machine. `timestamp` returns the time of day for `created_at`.
    `should_stop` is called after every trial; once it returns True, nothing more is measured, and
    the best candidate so far is confirmed and promoted. `control` is the clock of the run: it ends
    the run when its time budget is used up, receives reports of the run's activity, and can abort
    the run at any time. Its `pause`, which may wait, is called before each batch and before the
    best is confirmed. `previous_trials` are the first trials of this run, as an earlier process
    reported them: trials with stored records are entered unchanged, and the search continues after
    them. `beside_check` is called once at the end with the trace of the fastest candidate, when
    only untimed cases of its full check are left; the check may still fail.
    """

    fresh: bool = False
    machine: MeasuringMachine | None = None
    timestamp: Callable[[], str] = lambda: datetime.now(UTC).isoformat(timespec="milliseconds")
    should_stop: Callable[[], bool] = lambda: False
    control: Control = field(default_factory=Control)
    previous_trials: Sequence[PreviousTrial] = ()
    beside_check: Callable[[Trace], None] = lambda trace: None
