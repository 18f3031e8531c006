"""Works that were never tuned here: requests to prepare an answer, and to tune in the background.

The process that answers lookups chooses, compiles and checks nothing: it stores the request.
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
from tilewright.service.answers.answer_cache import CacheMiss, FoundAnswer, Outcome
from tilewright.service.grade import Grade
from tilewright.service.resolve import workloads

if TYPE_CHECKING:
    from tilewright.db import Store
    from tilewright.service.answers.preparers import Preparers
    from tilewright.service.database_quota import DatabaseQuota
    from tilewright.service.limits import RequestLimits

log = logging.getLogger("tilewright.untuned")

TicketJob: TypeAlias = tuple[dict[str, Any], str, str]
Tickets: TypeAlias = Callable[[Workload], TicketJob | None]
"""The job that would tune a workload (request, body hash, flight key); None where none can."""

SECS_A_WORK = 2.5
MOST_RETRY_SECS = 30
WORKS_PER_COMMIT = 50
"""A transaction of more would keep other writers waiting for long."""


@dataclass(frozen=True, slots=True)
class PrepareRequest:
    """A work to prepare; `read` gives its workload when it is needed. `again`: it was prepared
    before some of the records stored now."""

    workload_key: str
    read: Callable[[], Workload | None]
    again: bool = False


def is_wanted(outcome: Outcome, minimum: Grade) -> bool:
    """Whether to request a preparation: there is no answer, or there are unchecked records."""
    if outcome.preparing:
        return False
    if outcome.untried:
        return True
    if not isinstance(outcome, CacheMiss) or minimum is not Grade.DEFAULT:
        return False
    return not outcome.prepared or is_to_be_tried_again(outcome)


def is_to_be_tried_again(outcome: Outcome) -> bool:
    """Whether a preparation failed so long ago that it is to be repeated."""
    when = outcome.try_again_at if isinstance(outcome, CacheMiss) else None
    return when is not None and time.time() >= when


def is_settled(outcome: Outcome) -> bool:
    """Whether waiting would change nothing that matters to the client."""
    if isinstance(outcome, FoundAnswer) and outcome.grade is not Grade.DEFAULT:
        return True
    return not outcome.preparing


@dataclass(frozen=True, slots=True)
class PrepareQueue:
    """Requests preparations in `store`, for one toolchain."""

    store: Store
    toolchain: str
    limits: RequestLimits
    preparers: Preparers
    room: DatabaseQuota

    def demand(
        self,
        wanted: Iterable[PrepareRequest],
        target: Target,
        tickets: Tickets,
        until: float = float("inf"),
        owner: str | None = None,
    ) -> set[str]:
        """Have works prepared; the keys of the refused ones: no room (for the owner, for all, in
        the database), unknown, or too late (`until`, on the monotonic clock). The first batch is
        taken however late it is, so that repeated lookups come to an end. The jobs that tune the
        works belong to `owner`."""
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
            if len(batch) == WORKS_PER_COMMIT:
                refused |= self._request(batch, owner)
                left, batch = left + len(batch), []
        if batch:
            refused |= self._request(batch, owner)
        return refused

    def name(self, workload_key: str, target_key: str) -> str:
        """The key of the preparation of a work."""
        return preparation_key(workload_key, target_key, self.toolchain)

    def waiting(self) -> int:
        """How many works wait to be prepared; starts processes for them."""
        waiting = self.store.preparations_waiting(self.toolchain)
        self.preparers.wake(waiting)
        return waiting

    def retry_after_secs(self) -> int:
        """After how many seconds to repeat a lookup: about when all waiting works are prepared."""
        each = SECS_A_WORK / max(self.preparers.processes, 1)
        return max(1, min(round(each * self.waiting()), MOST_RETRY_SECS))

    def _request(self, batch: list[Demand], owner: str | None) -> set[str]:
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
    """The workload of a request; None where this version cannot read the stored document."""
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
    """The workload of a key, None if it is not stored here."""
    entry = store.workload(key)
    return None if entry is None else workloads.workload_of(entry.document)
