"""The job that tunes what somebody asked for and nobody tuned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schedules.errors import TargetError
from schedules.target import Target
from schedules.workload import Workload
from service.jobs.request import JobRequest
from service.jobs.tuning import REAL, TuneOptions, check_measurable
from service.resolve import targets


def tickets_for(
    target: Target, trials: int
) -> Callable[[Workload], tuple[dict[str, Any], str, str] | None]:
    """What makes the job of a workload on `target`: request, body hash and flight key. None where
    no machine of this service can measure it."""
    try:
        check_measurable(target, REAL)
        native = targets.target_of("native", target.threads).key == target.key
    except TargetError:
        return lambda workload: None
    options = TuneOptions(trials=trials)

    def ticket(workload: Workload) -> tuple[dict[str, Any], str, str]:
        request = JobRequest(workload, target, native, options)
        flight = request.flight_key
        return request.to_json(), flight, flight

    return ticket


def no_tickets(workload: Workload) -> None:
    """For those who may not submit jobs."""
