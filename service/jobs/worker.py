"""The coordinator: leases jobs from the database and runs a few of them in turns.

Everything a job did is in the database when it is told, so this process may die at any moment:
whoever coordinates next continues its jobs from their records, at once.
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

# Start-up: a query loads no SQLAlchemy; what needs it imports it.

log = logging.getLogger("tilewright.worker")


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What a worker is told. `db_url` "" means the user's own database; `beat_fd` is where it says
    that it lives, None for nowhere; with `standby` it waits while another coordinates. `blameless`:
    the worker before was ended from outside, by no job of its own."""

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
    """Leases and runs jobs until `means.stop` is set."""

    means: JobContext
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
        self._fleet = JobSlots(FleetSize(self.means.fleet, at_least=self.jobs_at_once))
        self._since = self.means.clock()

    def work(self) -> None:
        """Run jobs as they come, until told to stop; then wait for those that are open."""
        pause_secs = self.poll_secs
        while not self.means.stop.is_set():
            try:
                problem = self.identity.problem()
                if problem:
                    raise StoreError(problem)
                if self.coordinated and not self.means.store.coordinates():
                    # A server's lock ends with its connection. Taking it again ends the leases of
                    # the jobs that run here too: they stop, and are leased anew.
                    log.warning("the coordinator's lock was lost with its connection")
                    coordinate(
                        self.means.store,
                        self.means.stop,
                        standby=True,
                        blameless=True,
                        take_role=self.take_role,
                    )
                while self._open_one():
                    pass
                pause_secs = self.poll_secs
            except StoreError as error:
                # Whatever holds the database, or fills the disk, may go away again.
                self.means.tally.store_error()
                pause_secs = min(max(2 * pause_secs, 0.5), timeouts.DATABASE_RETRY_MAX_SECS)
                log.warning("no jobs are taken: %s; looking again in %g s", error, pause_secs)
            self.means.stop.wait(pause_secs)
        for thread in (*self._here.threads.values(), *self._fleet.threads.values()):
            thread.join()

    def work_once(self) -> bool:
        """Run one job in this thread, if there is one; whether there was."""
        leased = self._lease()
        if leased is None:
            return False
        job, _, owner = leased
        JobRun(self.means, job, owner).to_its_end()
        return True

    def _open_one(self) -> bool:
        """Start a job beside those that are open, if one may be; whether it did."""
        leased = self._lease()
        if leased is None:
            return False
        job, places, owner = leased
        run = JobRun(self.means, job, owner)
        thread = threading.Thread(target=run.to_its_end, name=f"job {job.id}", daemon=True)
        places.owners[job.id], places.threads[job.id] = owner, thread
        thread.start()
        return True

    def _lease(self) -> tuple[StoredJob, JobSlots, str] | None:
        """The next job, where it counts and whose it is: a fleet's jobs take no place from this
        machine's."""
        lived_secs = self.means.clock() - self._since
        waiting = [
            job
            for job in self.means.store.job_queue()
            if queue.rest_secs(job.failures) <= lived_secs
        ]
        if any(map(_is_ticket, waiting)) and self.means.answers_first():
            waiting = [job for job in waiting if not _is_ticket(job)]
        for places, fleet in ((self._here, False), (self._fleet, True)):
            open_owners = places.open_owners()  # a job that came back to the queue is not open
            of_kind = [j for j in waiting if j.fleet == fleet and j.id not in places.threads]
            leased = self._lease_one_of(of_kind, places, open_owners) if of_kind else None
            if leased is not None:
                return leased[0], places, leased[1]
        return None

    def _lease_one_of(
        self, waiting: list[WaitingJob], places: JobSlots, open_owners: list[str]
    ) -> tuple[StoredJob, str] | None:
        chosen = queue.choose(
            waiting,
            places=places.count(),
            open_owners=open_owners,
            has_oldest=places.oldest in places.threads,
        )
        if chosen is None:
            return None
        job = self.means.store.lease_job(self.owner, self.means.lease_secs, job_id=chosen.id)
        if job is not None and chosen.id == queue.order(waiting)[0].id:
            places.oldest = job.id
        return None if job is None else (job, chosen.owner)


def _is_ticket(job: WaitingJob) -> bool:
    return not job.fleet and job.priority <= TICKET_PRIORITY


def main() -> int:
    """Run a worker until SIGTERM, with the settings that its standard input holds, as JSON: its
    environment and command line, which others may read, hold no password of a database."""
    from tilewright.db import open_store

    settings = WorkerSettings(**json.load(sys.stdin))
    configure(as_json=settings.json_log)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        # `serve` has made and upgraded it: a file that is gone by now must not begin anew, empty.
        with open_store(settings.db_url or None, create=False, upgrade=False) as store:
            means = JobContext(store, settings.lease_secs, stop, fleet=settings.fleet)
            pulse = Heartbeat(settings.beat_fd, means.tally, stop)
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
                means,
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
    """Become the one coordinator, which ends the leases of the one before, who is gone; False if
    stopped first. With `standby` it waits while another lives, or the server is away; `take_role`
    is called with each role as it begins. StoreHeld names the other."""
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
