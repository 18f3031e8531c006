"""The queues of a fleet's machines, shared fairly by all jobs of this process.

A service runs several jobs on one fleet. Without coordination each would send its orders to the
first machine of the list, or fill every queue before the others order anything. So each job
reserves a place first: an order goes to a machine with room in its queue, preferably an idle one,
and best to one that has the job's workload open. While places are short, the job with the fewest
unanswered candidates goes first. Orders of other processes are not known here; they wait in the
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

ORDERS_A_MACHINE = 2
"""One being measured and one in the queue, so that no machine waits for the coordinator."""


@dataclass(slots=True)
class Reservation:
    """An order of `owner` at `machine`; `candidates` are not answered yet."""

    owner: int
    machine: str
    candidates: int


@dataclass(slots=True)
class WaitingBatch:
    """A job with more candidates than places; `wake` is called when a place may be free."""

    machines: AbstractSet[str]
    wake: Callable[[], None]
    woken_at: float | None = None


@dataclass(slots=True)
class Reservations:
    """The orders of this process at the machines of one fleet. Thread-safe."""

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

        Its arguments are the places, best first (a machine once for each order it has room for),
        and how many jobs share these machines; it returns its orders. `wake` is called, from
        another thread, once there may be more places, until `withdraw`.
        """
        with self._lock:
            self._waiting_batches[owner] = WaitingBatch(frozenset(machines), wake)
            places = self._places(owner, machines)
            for made in assign(places, len(self._interested(machines))):
                self._reserved[made.task] = Reservation(owner, made.machine, len(made.unanswered))
                self._note_open(made.machine, owner)

    def withdraw(self, owner: int) -> None:
        """`owner` has ordered all its candidates and waits for no place."""
        with self._lock:
            if self._waiting_batches.pop(owner, None) is not None:
                self._wake()

    def answered(self, task: str) -> None:
        """One candidate of an order was answered."""
        with self._lock:
            if task in self._reserved:
                self._reserved[task].candidates -= 1

    def release(self, task: str) -> None:
        """The order has ended, or its machine was lost."""
        with self._lock:
            if self._reserved.pop(task, None) is not None:
                self._wake()

    def leave(self, owner: int) -> None:
        """`owner` orders nothing more and drops its orders."""
        with self._lock:
            self._waiting_batches.pop(owner, None)
            for task in [task for task, b in self._reserved.items() if b.owner == owner]:
                del self._reserved[task]
            self._wake()

    def _places(self, owner: int, machines: Sequence[str]) -> list[str]:
        """Places for `owner`, idle machines first, those with its workload open before others; none
        at machines that a job with fewer unanswered candidates waits for."""
        orders = {m: [b for b in self._reserved.values() if b.machine == m] for m in machines}
        mine = self._out(owner)
        hungry = [
            batch
            for other, batch in self._waiting_batches.items()
            if other != owner and self._out(other) < mine and _is_awake(batch)
        ]

        def preference(machine: str, room: int) -> tuple[int, bool, int]:
            left = sum(b.candidates for b in orders[machine])
            return room, owner not in self._has_open.get(machine, ()), left

        free = [
            (preference(machine, room), machine)
            for machine in machines
            if not any(machine in batch.machines for batch in hungry)
            for room in range(len(orders[machine]), ORDERS_A_MACHINE)
        ]
        return [machine for _, machine in sorted(free, key=lambda place: place[0])]

    def _out(self, owner: int) -> int:
        return sum(b.candidates for b in self._reserved.values() if b.owner == owner)

    def _interested(self, machines: Sequence[str]) -> set[int]:
        """The jobs that have orders on some of `machines`, or wait for places there."""
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
    """The reservations of this process at the fleet whose scheduler is at `address`."""
    with _guard:
        return _of_fleets.setdefault(address, Reservations())


def share_of(count: int, machines: int, jobs: int) -> int:
    """How many of a batch of `count` candidates go into one order.

    A single machine gets all, so that it compiles one while it times another. Several machines get
    two orders each, so that all end at about the same time; jobs that share the machines make fewer
    and larger orders.
    """
    if machines <= 1:
        return count
    return min(count, -(-count * jobs // (ORDERS_A_MACHINE * machines)))
