"""The states of a job and their transitions, as a table."""

from __future__ import annotations

from enum import StrEnum

from ..errors import BadTransition


class JobState(StrEnum):
    """The state of a job. The last three are final."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    CANCELLING = "CANCELLING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def final(self) -> bool:
        return not NEXT[self]

    @property
    def joinable(self) -> bool:
        """Whether an equal request may join this job."""
        return self in (JobState.QUEUED, JobState.RUNNING)


LEASED = (JobState.RUNNING, JobState.CANCELLING)
"""The states in which the job is leased to a worker."""

MAX_FAILURES = 10
"""The number of successive workers that may die in a job without a new trial."""

LOST_TOO_OFTEN = {
    "code": "lost_too_often",
    "detail": f"{MAX_FAILURES} workers in succession ended while they worked on this job, "
    "without a new trial",
}

_S = JobState
NEXT: dict[JobState, frozenset[JobState]] = {
    _S.QUEUED: frozenset({_S.RUNNING, _S.CANCELLED, _S.FAILED}),
    # Back to QUEUED: a worker that is shut down returns its job for another to continue.
    _S.RUNNING: frozenset({_S.QUEUED, _S.CANCELLING, _S.SUCCEEDED, _S.FAILED}),
    # A job may end normally between the cancel request and the moment its worker sees the request.
    _S.CANCELLING: frozenset({_S.CANCELLED, _S.SUCCEEDED, _S.FAILED}),
    _S.SUCCEEDED: frozenset(),
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}


def check_transition(job_id: str, old: JobState, new: JobState) -> None:
    """Raise BadTransition if a job in `old` may not become `new`."""
    if new not in NEXT[old]:
        choices = ", ".join(sorted(NEXT[old])) or "nothing: it is final"
        raise BadTransition(f"job {job_id} is {old}: can become {choices}; requested {new}")


def after_cancel_request(state: JobState) -> JobState:
    """Return the state of a job after a cancel request: final immediately if it has no worker."""
    if state is JobState.QUEUED:
        return JobState.CANCELLED
    return JobState.CANCELLING if state is JobState.RUNNING else state
