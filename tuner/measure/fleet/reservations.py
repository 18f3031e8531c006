"""Reservations of places in the queues of a fleet's machines, fair to all jobs of this process.

A service runs several jobs on one fleet. Without reservations, each job would send its requests to
the first machine of the list, or fill every queue before the other jobs send anything. Each job
first reserves a place. It gets a free place in a queue, preferably of an idle machine, and among
these of one that has its workload open. While places are scarce, the job with the fewest candidates
in progress is served first. Requests of other processes are unknown here; they wait in the
machines' own queues.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from ... import timeouts
from .dispatch import Assignment
from .host import MAX_OPEN_MEASURERS

REQUESTS_PER_MACHINE = 2
"""One request in progress and one in the queue, so that no machine waits for the coordinator."""


@dataclass(slots=True)
class Reservation:
    """A request of `owner` at `machine`; `candidates` of it have no result yet."""

    owner: int
    machine: str
    candidates: int


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
        """Let `assign` fill the places on `machines` that `owner` may use now.

        `assign(places, jobs)` returns its requests. `places` lists machines, best first, once for
        each request that they can accept; `jobs` is the number of jobs that share these machines.
        `wake` is called, from another thread, when there may be more places, until `withdraw` is
        called.
        """
        with self._lock:
            self._waiting_batches[owner] = WaitingBatch(frozenset(machines), wake)
            places = self._places(owner, machines)
            for made in assign(places, len(self._interested(machines))):
                self._reserved[made.task] = Reservation(owner, made.machine, len(made.unanswered))
                self._note_open(made.machine, owner)

    def withdraw(self, owner: int) -> None:
        """Record that `owner` has requested all its candidates and waits for no place."""
        with self._lock:
            if self._waiting_batches.pop(owner, None) is not None:
                self._wake()

    def answered(self, task: str) -> None:
        """Record the result of one candidate of a request."""
        with self._lock:
            if task in self._reserved:
                self._reserved[task].candidates -= 1

    def release(self, task: str) -> None:
        """Free the place of a request that has ended or whose machine was lost."""
        with self._lock:
            if self._reserved.pop(task, None) is not None:
                self._wake()

    def leave(self, owner: int) -> None:
        """Remove all requests of `owner`, which sends no more."""
        with self._lock:
            self._waiting_batches.pop(owner, None)
            for task in [task for task, b in self._reserved.items() if b.owner == owner]:
                del self._reserved[task]
            self._wake()

    def _places(self, owner: int, machines: Sequence[str]) -> list[str]:
        """Return the places for `owner`: idle machines first, then those with its workload open.

        Machines for which a job with fewer candidates in progress waits are excluded.
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
    """Return this process's reservations at the fleet whose scheduler is at `address`."""
    with _guard:
        return _of_fleets.setdefault(address, Reservations())


def share_of(count: int, machines: int, jobs: int) -> int:
    """Return how many candidates of a batch of `count` go into one request.

    A single machine gets all of them, so that it compiles one while it times another. Several
    machines get two requests each, so that all finish at about the same time. Jobs that share the
    machines send fewer and larger requests.
    """
    if machines <= 1:
        return count
    return min(count, -(-count * jobs // (REQUESTS_PER_MACHINE * machines)))
