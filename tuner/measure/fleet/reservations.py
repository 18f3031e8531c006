"""Reservations of places in the queues of a fleet's machines. They are fair to all jobs of this
process.

A service runs several jobs on one fleet. Without reservations, each job would send its requests to
the first machine of the list, or fill every queue before the other jobs send anything. Therefore
each job first reserves a place in the queue of a machine. Idle machines are preferred, then
machines that have the job's workload open. If there are more jobs than places, the job with the
fewest candidates in progress is served first. Requests of other processes are not known here. They
wait in the machines' own queues.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import ceil

from ... import timeouts
from .dispatch import Assignment
from .host import MAX_OPEN_MEASURERS

REQUESTS_PER_MACHINE = 2
"""One request that is measured and one in the queue, so that no machine waits for the
coordinator."""


@dataclass(slots=True)
class Reservation:
    """A request of the job `owner` at `machine`."""

    owner: int
    machine: str
    candidates: int
    """The number of its candidates that have no result yet."""


@dataclass(slots=True)
class WaitingBatch:
    """A job with more candidates than places. `wake` is called when a place may be free."""

    machines: AbstractSet[str]
    wake: Callable[[], None]
    woken_at: float | None = None


@dataclass(slots=True)
class Reservations:
    """The requests of this process at the machines of one fleet. Thread-safe."""

    _reserved: dict[str, Reservation] = field(default_factory=dict)
    _waiting_batches: dict[int, WaitingBatch] = field(default_factory=dict)
    _has_open: dict[str, deque[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reserve(
        self,
        owner: int,
        machines: Sequence[str],
        wake: Callable[[], None],
        assign: Callable[[list[str], int], Sequence[Assignment]],
    ) -> None:
        """Call `assign` to fill the places on `machines` that the job `owner` may use now.

        `assign(places, jobs)` returns its requests. `places` lists machines, best first. A machine
        occurs once for each request that it can accept. `jobs` is the number of jobs on these
        machines. Until `withdraw` is called, another thread calls `wake` when there may be more
        places.
        """
        with self._lock:
            self._waiting_batches[owner] = WaitingBatch(frozenset(machines), wake)
            places = self._places(owner, machines)
            for made in assign(places, len(self._interested(machines))):
                self._reserved[made.task] = Reservation(owner, made.machine, len(made.unanswered))
                self._note_open(made.machine, owner)

    def withdraw(self, owner: int) -> None:
        """Record that `owner` has requested all its candidates, so that it waits for no place."""
        with self._lock:
            if self._waiting_batches.pop(owner, None) is not None:
                self._wake()

    def answered(self, task: str) -> None:
        """Record the result of one candidate of a request."""
        with self._lock:
            if task in self._reserved:
                self._reserved[task].candidates -= 1

    def release(self, task: str) -> None:
        """Free the place of a request that has ended, or whose machine was lost."""
        with self._lock:
            if self._reserved.pop(task, None) is not None:
                self._wake()

    def leave(self, owner: int) -> None:
        """Remove all requests of `owner`, which sends no more requests."""
        with self._lock:
            self._waiting_batches.pop(owner, None)
            for task in [task for task, b in self._reserved.items() if b.owner == owner]:
                del self._reserved[task]
            self._wake()

    def _places(self, owner: int, machines: Sequence[str]) -> list[str]:
        """Return the places for `owner`: idle machines first, then machines that have its workload
        open.

        A machine is excluded if another job waits for it that has fewer candidates in progress.
        """
        requests = {m: [b for b in self._reserved.values() if b.machine == m] for m in machines}
        mine = self._out(owner)
        hungry = [
            batch
            for other, batch in self._waiting_batches.items()
            if other != owner and self._out(other) < mine and _is_awake(batch)
        ]

        def preference(machine: str, place: int) -> tuple[int, bool, int]:
            left = sum(b.candidates for b in requests[machine])
            return place, owner not in self._has_open.get(machine, ()), left

        free = [
            (preference(machine, place), machine)
            for machine in machines
            if not any(machine in batch.machines for batch in hungry)
            for place in range(len(requests[machine]), REQUESTS_PER_MACHINE)
        ]
        return [machine for _, machine in sorted(free, key=lambda item: item[0])]

    def _out(self, owner: int) -> int:
        return sum(b.candidates for b in self._reserved.values() if b.owner == owner)

    def _interested(self, machines: Sequence[str]) -> set[int]:
        """Return the jobs that have requests on some of `machines`, or wait for places there."""
        wanting = {
            o
            for o, batch in self._waiting_batches.items()
            if not batch.machines.isdisjoint(machines)
        }
        return wanting | {b.owner for b in self._reserved.values() if b.machine in machines}

    def _note_open(self, machine: str, owner: int) -> None:
        known = self._has_open.setdefault(machine, deque(maxlen=MAX_OPEN_MEASURERS))
        if owner in known:
            known.remove(owner)
        known.append(owner)

    def _wake(self) -> None:
        now = time.monotonic()
        for batch in self._waiting_batches.values():
            if batch.woken_at is None:
                batch.woken_at = now
                batch.wake()


def _is_awake(batch: WaitingBatch) -> bool:
    return batch.woken_at is None or time.monotonic() - batch.woken_at < timeouts.WAKE_REACTION_SECS


_of_fleets: dict[str, Reservations] = {}
_guard = threading.Lock()


def reservations_of(address: str) -> Reservations:
    """Return this process's reservations in the fleet whose scheduler is at `address`."""
    with _guard:
        return _of_fleets.setdefault(address, Reservations())


def share_of(count: int, machines: int, jobs: int) -> int:
    """Return the number of candidates in one request, for a batch of `count` candidates.

    A single machine gets all of them, so that it compiles one while it times another. If there are
    several machines, each gets two requests, so that all finish at about the same time. If several
    jobs use the machines, they send fewer and larger requests. The requests of a batch are equally
    large.
    """
    if machines <= 1 or count <= 1:
        return count
    most = min(count, ceil(count * jobs / (REQUESTS_PER_MACHINE * machines)))
    return ceil(count / ceil(count / most))
