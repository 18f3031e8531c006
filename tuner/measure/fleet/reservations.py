"""Which machines of a fleet have room, shared by all jobs of this process.

A service has several jobs on one fleet. Each gives its own orders out, and each would send them to
the first machine of the list, or fill every queue before the others have come to ask. So all of
them book here: an order goes to a machine only when there is room, best to an idle one, best of
all to one that has the job's work open. While there are fewer places than wishes, the job with the
fewest candidates out goes first. What other processes order from the same fleet is not known
here; it waits its turn in the machines' own queues.
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
"""One at work and one in the queue, so that no machine waits for the coordinator."""


@dataclass(slots=True)
class Reservation:
    """An order of `owner` that `machine` has; `candidates` are not answered yet."""

    owner: int
    machine: str
    candidates: int


@dataclass(slots=True)
class WaitingBatch:
    """Somebody with more candidates than places; `wake` is called when a place may be free."""

    machines: AbstractSet[str]
    wake: Callable[[], None]
    woken_at: float | None = None


@dataclass(slots=True)
class Reservations:
    """The orders that the machines of one fleet have from this process. Safe for any thread."""

    _booked: dict[str, Reservation] = field(default_factory=dict)
    _wishes: dict[int, WaitingBatch] = field(default_factory=dict)
    _has_open: dict[str, deque[int]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def book(
        self,
        owner: int,
        machines: Sequence[str],
        wake: Callable[[], None],
        assign: Callable[[list[str], int], Sequence[Assignment]],
    ) -> None:
        """Let `assign` use the places that `owner` may have on `machines` now.

        It is given the places, best first (a machine once for each order it has room for), and
        how many jobs share these machines; it returns what it ordered. `wake` is called, from
        another thread, once there may be more; `forgo` ends it.
        """
        with self._lock:
            self._wishes[owner] = WaitingBatch(frozenset(machines), wake)
            places = self._places(owner, machines)
            for made in assign(places, len(self._interested(machines))):
                self._booked[made.task] = Reservation(owner, made.machine, len(made.left))
                self._note_open(made.machine, owner)

    def forgo(self, owner: int) -> None:
        """`owner` has given out all it has."""
        with self._lock:
            if self._wishes.pop(owner, None) is not None:
                self._wake()

    def answered(self, task: str) -> None:
        """One candidate of an order was answered."""
        with self._lock:
            if task in self._booked:
                self._booked[task].candidates -= 1

    def free(self, task: str) -> None:
        """A machine is through with an order, or was lost."""
        with self._lock:
            if self._booked.pop(task, None) is not None:
                self._wake()

    def leave(self, owner: int) -> None:
        """`owner` orders nothing more, and wants nothing of what it ordered."""
        with self._lock:
            self._wishes.pop(owner, None)
            for task in [task for task, b in self._booked.items() if b.owner == owner]:
                del self._booked[task]
            self._wake()

    def _places(self, owner: int, machines: Sequence[str]) -> list[str]:
        """Idle machines first, those that have the owner's work open before others; a machine
        that a hungrier job waits for has none."""
        orders = {m: [b for b in self._booked.values() if b.machine == m] for m in machines}
        mine = self._out(owner)
        hungry = [
            wish
            for other, wish in self._wishes.items()
            if other != owner and self._out(other) < mine and _is_awake(wish)
        ]

        def preference(machine: str, room: int) -> tuple[int, bool, int]:
            left = sum(b.candidates for b in orders[machine])
            return room, owner not in self._has_open.get(machine, ()), left

        free = [
            (preference(machine, room), machine)
            for machine in machines
            if not any(machine in wish.machines for wish in hungry)
            for room in range(len(orders[machine]), ORDERS_A_MACHINE)
        ]
        return [machine for _, machine in sorted(free, key=lambda place: place[0])]

    def _out(self, owner: int) -> int:
        return sum(b.candidates for b in self._booked.values() if b.owner == owner)

    def _interested(self, machines: Sequence[str]) -> set[int]:
        """Who has orders on some of `machines`, or wants to."""
        wanting = {o for o, wish in self._wishes.items() if not wish.machines.isdisjoint(machines)}
        return wanting | {b.owner for b in self._booked.values() if b.machine in machines}

    def _note_open(self, machine: str, owner: int) -> None:
        known = self._has_open.setdefault(machine, deque(maxlen=MAX_OPEN_MEASURERS))
        if owner in known:
            known.remove(owner)
        known.append(owner)

    def _wake(self) -> None:
        now = time.monotonic()
        for wish in self._wishes.values():
            if wish.woken_at is None:
                wish.woken_at = now
                wish.wake()


def _is_awake(wish: WaitingBatch) -> bool:
    return wish.woken_at is None or time.monotonic() - wish.woken_at < timeouts.WAKE_REACTION_SECS


_of_fleets: dict[str, Reservations] = {}
_guard = threading.Lock()


def reservations_of(address: str) -> Reservations:
    """The one book of this process for the fleet whose scheduler is at `address`."""
    with _guard:
        return _of_fleets.setdefault(address, Reservations())


def share_of(count: int, machines: int, jobs: int) -> int:
    """How many of a batch of `count` candidates go into one order.

    One machine gets all, so that it compiles one while it times another. Several get so many
    orders that each has one to work on and one in the queue, and all end at about the same time;
    the more jobs share them, the fewer of them are one job's.
    """
    if machines <= 1:
        return count
    return min(count, -(-count * jobs // (ORDERS_A_MACHINE * machines)))
