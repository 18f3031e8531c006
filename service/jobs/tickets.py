"""Ticket jobs tune workloads that a lookup requested and no job has tuned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.service.answers.grades import grade_of
from tilewright.service.jobs.options import TuneOptions
from tilewright.service.jobs.request import JobRequest
from tilewright.service.resolve import targets
from tilewright.tuner.session.report import Budget

Ticket = tuple[dict[str, Any], str, str]
Tickets = Callable[[Workload], Ticket | None]


def tickets_for(target: Target, trials: int) -> Tickets:
    """Return a function that maps a workload to its ticket job on `target`: request, body hash and
    flight key. The function returns None if this machine cannot run code for `target`."""
    host = targets.this_machine()
    if grade_of(target, host) is None:
        return lambda workload: None
    native = host.key == target.with_threads(1).key
    options = TuneOptions(Budget(trials))

    def ticket(workload: Workload) -> Ticket:
        request = JobRequest(workload, target, native, options)
        flight = request.flight_key
        return request.to_json(), flight, flight

    return ticket


def no_tickets(workload: Workload) -> None:
    """Return None: callers who may not submit jobs get no ticket."""
