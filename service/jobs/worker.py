"""The worker: leases jobs from the database and runs a few of them in time slices.

State is stored before it is reported, so this process may die at any moment. The next coordinator
resumes its jobs immediately.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.db.errors import StoreError, StoreHeld
from tilewright.db.values.jobs import TICKET_PRIORITY, StoredJob, WaitingJob
from tilewright.schedules.errors import TilewrightError
from tilewright.service import timeouts
from tilewright.service.file_identity import FileIdentity
from tilewright.service.jobs import queue
from tilewright.service.jobs.heartbeat import Heartbeat, Role
from tilewright.service.jobs.job_slots import FleetSize, JobSlots
from tilewright.service.jobs.run import JobContext, JobRun
from tilewright.service.logs import configure
from tilewright.service.problems import problem_of

if TYPE_CHECKING:
    from tilewright.db import Store

# Start-up: a query loads no SQLAlchemy; functions that need it import it.

log = logging.getLogger("tilewright.worker")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of a worker. `db_url` is "" for the user's default database. Heartbeats go to
    `beat_fd`, unless it is None. `standby`: wait while another worker coordinates. `blameless`: the
    previous worker was killed from outside, not by a job."""

    db_url: str
    lease_secs: float = 5.0
    poll_secs: float = 0.5
    coordinate: bool = True
    json_log: bool = False
    jobs_at_once: int = 3
    standby: bool = False
    beat_fd: int | None = None
    fleet: str = ""
    blameless: bool = False


@dataclass
class Worker:
    """Leases and runs jobs until `context.stop` is set."""

    context: JobContext
    owner: str
    poll_secs: float = 0.5
    jobs_at_once: int = 3
    identity: FileIdentity = field(default_factory=lambda: FileIdentity(None))
    coordinated: bool = False
    take_role: Callable[[Role], None] = lambda role: None
    _here: JobSlots = field(init=False)
    _fleet: JobSlots = field(init=False)
    _since: float = 0.0

    def __post_init__(self) -> None:
        self._here = JobSlots(lambda: self.jobs_at_once)
        self._fleet = JobSlots(FleetSize(self.context.fleet, at_least=self.jobs_at_once))
        self._since = self.context.clock()

    def work(self) -> None:
        """Run jobs until stopped; then wait for the open jobs to end."""
        pause_secs = self.poll_secs
        while not self.context.stop.is_set():
            try:
                problem = self.identity.problem()
                if problem:
                    raise StoreError(problem)
                if self.coordinated and not self.context.store.coordinates():
                    # A database server releases the lock when the connection ends. Taking the lock
                    # again ends the leases of the jobs that run here; they are leased again.
                    log.warning("the coordinator's lock was lost with its connection")
                    coordinate(
                        self.context.store,
                        self.context.stop,
                        standby=True,
                        blameless=True,
                        take_role=self.take_role,
                    )
                while self._open_one():
                    pass
                pause_secs = self.poll_secs
            except StoreError as error:
                # The cause may be temporary, such as another process on the database or a full
                # disk.
                self.context.counters.store_error()
                pause_secs = min(max(2 * pause_secs, 0.5), timeouts.DATABASE_RETRY_MAX_SECS)
                log.warning("no jobs are taken: %s; looking again in %g s", error, pause_secs)
            self.context.stop.wait(pause_secs)
        for thread in (*self._here.threads.values(), *self._fleet.threads.values()):
            thread.join()

    def work_once(self) -> bool:
        """Run one waiting job in this thread; return whether there was one."""
        leased = self._lease()
        if leased is None:
            return False
        job, _, owner = leased
        JobRun(self.context, job, owner).run_to_end()
        return True

    def _open_one(self) -> bool:
        leased = self._lease()
        if leased is None:
            return False
        job, slots, owner = leased
        run = JobRun(self.context, job, owner)
        thread = threading.Thread(target=run.run_to_end, name=f"job {job.id}", daemon=True)
        slots.owners[job.id], slots.threads[job.id] = owner, thread
        thread.start()
        return True

    def _lease(self) -> tuple[StoredJob, JobSlots, str] | None:
        """Return the next job, leased, with its slots (of this machine or the fleet) and owner, or
        None."""
        lived_secs = self.context.clock() - self._since
        waiting = [
            job
            for job in self.context.store.job_queue()
            if queue.rest_secs(job.failures) <= lived_secs
        ]
        if any(map(_is_ticket, waiting)) and self.context.must_yield():
            waiting = [job for job in waiting if not _is_ticket(job)]
        for slots, fleet in ((self._here, False), (self._fleet, True)):
            open_owners = slots.open_owners()  # a requeued job is not open
            of_kind = [j for j in waiting if j.fleet == fleet and j.id not in slots.threads]
            leased = self._lease_one_of(of_kind, slots, open_owners) if of_kind else None
            if leased is not None:
                return leased[0], slots, leased[1]
        return None

    def _lease_one_of(
        self, waiting: list[WaitingJob], slots: JobSlots, open_owners: list[str]
    ) -> tuple[StoredJob, str] | None:
        chosen = queue.choose(
            waiting,
            slots=slots.count(),
            open_owners=open_owners,
            has_oldest=slots.oldest in slots.threads,
        )
        if chosen is None:
            return None
        job = self.context.store.lease_job(self.owner, self.context.lease_secs, job_id=chosen.id)
        if job is not None and chosen.id == queue.order(waiting)[0].id:
            slots.oldest = job.id
        return None if job is None else (job, chosen.owner)


def _is_ticket(job: WaitingJob) -> bool:
    return not job.fleet and job.priority <= TICKET_PRIORITY


def main() -> int:
    """Run a worker until SIGTERM. Settings are read from standard input as JSON, because other
    users can read the environment and the command line, and one setting may be a database
    password."""
    from tilewright.db import open_store

    settings = WorkerSettings(**json.load(sys.stdin))
    configure(as_json=settings.json_log)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        # `serve` has created the database. If it is missing now, it must not be created empty.
        with open_store(settings.db_url or None, create=False, upgrade=False) as store:
            context = JobContext(store, settings.lease_secs, stop, fleet=settings.fleet)
            pulse = Heartbeat(settings.beat_fd, context.counters, stop)
            if not settings.coordinate:
                pulse.take_role(Role.LEADER)
            elif not coordinate(
                store,
                stop,
                standby=settings.standby,
                blameless=settings.blameless,
                take_role=pulse.take_role,
            ):
                return 0
            owner = f"{socket.gethostname()}:{os.getpid()}"
            identity = FileIdentity(store.path)
            Worker(
                context,
                owner,
                settings.poll_secs,
                settings.jobs_at_once,
                identity,
                coordinated=settings.coordinate,
                take_role=pulse.take_role,
            ).work()
    except TilewrightError as error:
        problem = problem_of(error)
        log.error("%s", problem.detail, extra={"code": problem.code})
        return problem.exit_code
    return 0


def coordinate(
    store: Store,
    stop: threading.Event,
    *,
    standby: bool,
    blameless: bool = False,
    take_role: Callable[[Role], None] = lambda role: None,
) -> bool:
    """Become the only coordinator, and end the leases of the previous one. Return False if `stop`
    is set first. With `standby`, wait while another process coordinates or the server is
    unreachable; otherwise raise StoreHeld. `take_role` is called with each new role."""
    stands_by = False
    while not stop.is_set():
        try:
            store.coordinate(blameless=blameless)
        except StoreError as error:
            if not standby or not (error.transient or isinstance(error, StoreHeld)):
                raise
            if not stands_by:
                take_role(Role.STANDBY)
                log.info("standing by for the jobs of %s: %s", store.name, error)
            stands_by = True
            stop.wait(1.0)
            continue
        take_role(Role.LEADER)
        if stands_by:
            log.info("the other service is gone: this one runs the jobs of %s now", store.name)
        return True
    return False
