"""Chooses a schedule with the analytic model, without measurement, within a deadline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tilewright.tuner import timeouts

if TYPE_CHECKING:
    from tilewright.schedules.related import RelatedRecords
    from tilewright.schedules.target import Target
    from tilewright.schedules.trace import Trace
    from tilewright.schedules.workload.workload import Workload

# Start-up: a query loads neither SQLAlchemy nor a compiler; functions that need them import them.


def default_trace(
    workload: Workload,
    target: Target,
    secs: float | None = None,
    related: Sequence[RelatedRecords] = (),
) -> Trace:
    """Return the schedule that the analytic model chooses, corrected by the `related` records.
    Raise DeadlineError after `secs` (None: the default deadline). A command (main thread) computes
    it in this process, the service (other threads) in a helper process."""
    import threading

    from tilewright.tuner.compiling.deadline import alarm
    from tilewright.tuner.search.default import default_trace as choose_default

    what = "choosing a schedule without measurement"
    trials = []
    if related:
        from tilewright.service.resolve.toolchains import toolchain
        from tilewright.tuner.search.related import related_trials

        trials = related_trials(related, toolchain())
    if threading.current_thread() is threading.main_thread():
        with alarm(timeouts.COMPILE_DEADLINE_SECS if secs is None else secs, what):
            return choose_default(workload, target, trials)
    from tilewright.schedules.trace import Trace
    from tilewright.tuner.compiling.helper_process import shared_helper

    document = {
        "workload": workload.to_json(),
        "target": target.to_json(),
        "related": [trial.to_json() for trial in trials],
    }
    frame = shared_helper().call(
        "tilewright.tuner.search.default:default_of_document", document, what, secs
    )
    return Trace.from_json(frame.document["trace"])
