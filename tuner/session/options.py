"""What may differ between two runs of the same search."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from .limit import Machine
from .report import Begun, TrialEvent

EventHandler = Callable[[TrialEvent], None]


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What may differ between two runs of the same search.

    `fresh` ignores what is stored. `machine` can be probed again where a kernel beats the bound;
    None where times come from elsewhere. `clock` gives seconds, monotonic; `timestamp` the time of
    day for `created_at`. `should_stop` is asked after every trial; once true, nothing more is
    measured, and the best so far is confirmed and promoted as ever. `turn` is called before each
    batch and before the best is confirmed, and may wait; `clock` leaves such time out. `check` is
    called all the time while candidates are chosen; what it raises ends the run. `begun` are the
    first trials of this run, as an earlier process of it told them: they are entered as they are,
    as far as their records are stored, and the search goes on from there.
    """

    fresh: bool = False
    machine: Machine | None = None
    clock: Callable[[], float] = time.monotonic
    timestamp: Callable[[], str] = lambda: datetime.now(UTC).isoformat(timespec="milliseconds")
    should_stop: Callable[[], bool] = lambda: False
    turn: Callable[[], None] = lambda: None
    check: Callable[[], None] = lambda: None
    begun: Sequence[Begun] = ()
