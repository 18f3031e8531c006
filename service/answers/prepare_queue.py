"""The queue of preparations: answers for workloads that were never tuned here.

A request adds a row to the database, and a job that tunes the workload in the background.
Preparers, which are separate processes, choose, compile and check the schedule.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tilewright.db.values.answers import Demand, PreparationQuota, preparation_key
from tilewright.db.values.jobs import JobQuota
from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload
from tilewright.service import timeouts
from tilewright.service.answers.answer_cache import CacheMiss, FoundAnswer, Outcome
from tilewright.service.grade import Grade
from tilewright.service.resolve import workloads

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.service.answers.preparer_pool import PreparerPool
    from tilewright.service.database_quota import DatabaseQuota
    from tilewright.service.limits import RequestLimits

log = logging.getLogger("tilewright.preparing")

TicketJob: TypeAlias = tuple[dict[str, Any], str, str]
Tickets: TypeAlias = Callable[[Workload], TicketJob | None]
"""A function that returns the job that tunes a workload, as (request, body hash, flight key). It
returns None if no machine can measure the workload."""

PREPARATIONS_PER_COMMIT = 50
"""The size of one transaction; a larger one would block other writers for too long."""


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """A task to prepare. `read` parses its workload when it is needed. `again`: prepare the task
    even if a preparation is finished."""

    workload_key: str
    read: Callable[[], Workload | None]
    again: bool = False


def is_wanted(outcome: Outcome, minimum: Grade) -> bool:
    """Return whether to request a preparation: if there is no answer, or if records are
    unchecked."""
    if outcome.preparing:
        return False
    if outcome.untried:
        return True
    if not isinstance(outcome, CacheMiss) or minimum is not Grade.DEFAULT:
        return False
    return not outcome.prepared or is_to_be_tried_again(outcome)


def is_to_be_tried_again(outcome: Outcome) -> bool:
    """Return whether a preparation failed long enough ago to try again."""
    when = outcome.try_again_at if isinstance(outcome, CacheMiss) else None
    return when is not None and time.time() >= when


def is_settled(outcome: Outcome) -> bool:
    """Return whether waiting would not improve the answer."""
    if isinstance(outcome, FoundAnswer) and outcome.grade is not Grade.DEFAULT:
        return True
    return not outcome.preparing


@dataclass(frozen=True, slots=True)
class PrepareQueue:
    """The queue of preparations in `store`, under one toolchain."""

    store: Store
    toolchain: str
    limits: RequestLimits
    preparers: PreparerPool
    room: DatabaseQuota

    def enqueue(
        self,
        wanted: Iterable[PrepareRequest],
        target: Target,
        tickets: Tickets,
        until: float = float("inf"),
        owner: str | None = None,
    ) -> set[str]:
        """Request preparations. Return the workload keys that were refused, for one of these
        reasons:

        - a quota is used up: of the owner, of all owners, or of the database
        - the workload cannot be parsed
        - the time `until` (monotonic clock) has passed

        The first batch is accepted even after `until`, so that repeated requests finish eventually.
        The jobs that tune the workloads belong to `owner`.
        """
        refused: set[str] = set()
        batch: list[Demand] = []
        target_document = target.to_json()
        left = 0
        for one in wanted:
            late = left > 0 and not batch and time.monotonic() >= until
            workload = None if late else _read(one)
            if workload is None:
                refused.add(one.workload_key)
                continue
            job = tickets(workload)
            batch.append(_demand(workload, target.key, target_document, job, again=one.again))
            if len(batch) == PREPARATIONS_PER_COMMIT:
                refused |= self._enqueue_batch(batch, owner)
                left, batch = left + len(batch), []
        if batch:
            refused |= self._enqueue_batch(batch, owner)
        return refused

    def name(self, workload_key: str, target_key: str) -> str:
        """Return the key of a task's preparation."""
        return preparation_key(workload_key, target_key, self.toolchain)

    def waiting(self) -> int:
        """Start preparers for the waiting preparations; return how many wait."""
        waiting = self.store.preparations_waiting(self.toolchain)
        self.preparers.wake(waiting)
        return waiting

    def retry_after_secs(self) -> int:
        """Return the seconds after which the waiting preparations are probably finished."""
        each = timeouts.SECS_PER_PREPARATION / max(self.preparers.processes, 1)
        return max(1, min(round(each * self.waiting()), timeouts.PREPARATION_RETRY_MAX_SECS))

    def _enqueue_batch(self, batch: list[Demand], owner: str | None) -> set[str]:
        limits = self.limits
        if not self.room.is_left():
            return {one.workload_key for one in batch}
        refused = self.store.demand(
            batch,
            self.toolchain,
            most_waiting=self.limits.preparations,
            most_jobs=self.limits.ticket_jobs,
            owner=owner,
            quota=JobQuota(
                limits.owner_open_jobs, limits.owner_open_trials, limits.owner_ticket_jobs
            ),
            own=PreparationQuota(limits.owner_preparations, limits.owner_prepared),
        )
        self.preparers.wake(len(batch))
        return {workload_key for workload_key, _ in refused}


def _read(one: PrepareRequest) -> Workload | None:
    """Return the requested workload, or None if this version cannot parse the stored document."""
    try:
        return one.read()
    except WorkloadError as error:
        log.warning("workload %s cannot be read: %s", one.workload_key, error)
        return None


def _demand(
    workload: Workload,
    target_key: str,
    target_document: dict[str, Any],
    job: TicketJob | None,
    *,
    again: bool,
) -> Demand:
    return Demand(
        workload_key=workload.key,
        workload_document=workload.to_json(),
        name=workload.name,
        flops=int(workload.flops),
        target_key=target_key,
        target_document=target_document,
        job=job,
        again=again,
    )


def stored_workload(store: Store, key: str) -> Workload | None:
    entry = store.workload(key)
    return None if entry is None else workloads.workload_of(entry.document)
