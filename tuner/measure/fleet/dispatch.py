"""Distribution of candidates to machines, and recovery from lost machines. It uses no clock and no
network.

A batch of candidates is divided into requests. Each is sent to one machine, and Dask never moves it
to another. When a machine is lost, the candidates of its request that have no result are requested
again. If there were several, it is unknown which of them crashed the machine. These suspects are
then requested one by one. Only a candidate that was measured separately gets the status LOST.
Candidates of a request that had not begun are not suspects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tilewright.schedules.record import MeasureResult, MeasureStatus

MAX_DEATHS = 3
"""A candidate is LOST when this many machines were lost while they measured only this candidate."""

MAX_UNBEGUN = 5
"""A request may be lost this many times before its "begun" note. A machine may crash before it
sends this note."""


@dataclass(slots=True)
class Assignment:
    """A request that was sent to one machine."""

    task: str
    machine: str
    unanswered: list[int]
    """The candidates that have no result yet."""
    begun: bool = False


@dataclass(slots=True)
class Dispatch:
    """The state of one batch of candidates, which are numbered from 0 to `count` - 1.

    With `together`, one request to one machine has all candidates, because the compared times must
    come from one machine. Results count only after all of them have arrived.
    """

    count: int
    name: Callable[[], str]
    together: bool = False
    results: dict[int, MeasureResult] = field(default_factory=dict)
    under_way: dict[str, Assignment] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    _waiting: deque[int] = field(default_factory=deque)
    _suspects: deque[int] = field(default_factory=deque)
    _deaths: dict[int, int] = field(default_factory=dict)
    _unbegun: dict[int, int] = field(default_factory=dict)
    _unreported: dict[int, MeasureResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._waiting.extend(range(self.count))

    @property
    def done(self) -> bool:
        return len(self.results) == self.count

    @property
    def has_more(self) -> bool:
        """Return whether there are candidates to request."""
        return bool(self._suspects or self._waiting)

    def assign(self, places: Sequence[str], share: int) -> list[Assignment]:
        """Return new requests of up to `share` candidates, one for each of `places`.

        `places` lists machines, best first. A machine occurs once for each request that it can
        accept. With `together`, the first machine gets all candidates.
        """
        able = [m for m in places if m not in self.refused]
        if self.together:
            return self._assign_all(able)
        made: list[Assignment] = []
        for machine in able:
            if not self.has_more:
                break
            made.append(self._request(machine, self._next(share)))
        return made

    def _assign_all(self, able: Sequence[str]) -> list[Assignment]:
        if self.under_way or not able or not self._waiting:
            return []
        everything = list(self._waiting)
        self._waiting.clear()
        return [self._request(able[0], everything)]

    def _next(self, share: int) -> list[int]:
        """Return one suspect. If there is none, return up to `share` waiting candidates."""
        if self._suspects:
            return [self._suspects.popleft()]
        return [self._waiting.popleft() for _ in range(min(share, len(self._waiting)))]

    def _request(self, machine: str, positions: list[int]) -> Assignment:
        assignment = Assignment(self.name(), machine, positions)
        self.under_way[assignment.task] = assignment
        return assignment

    def begin(self, task: str) -> None:
        if task in self.under_way:
            self.under_way[task].begun = True

    def answer(self, task: str, position: int, result: MeasureResult) -> list[int]:
        """Store a result. Return the positions that now have their final result.

        A result of an abandoned request is accepted if the candidate has no other result, unless
        `together`.
        """
        if not 0 <= position < self.count:
            raise ValueError(f"position must be 0..{self.count - 1}, got {position}")
        assignment = self.under_way.get(task)
        if assignment is not None:
            assignment.begun = True
            assignment.unanswered = [p for p in assignment.unanswered if p != position]
        if self.together:
            if assignment is not None:
                self._unreported[position] = result
            return []
        return self._settle(position, result)

    def end(self, task: str) -> list[int]:
        """Handle the note that a request has ended. Return the positions that now have their final
        result."""
        assignment = self.under_way.get(task)
        if assignment is None or not self.together or assignment.unanswered:
            return self.lose(task)
        del self.under_way[task]
        reported = sorted(self._unreported.items())
        return [p for position, result in reported for p in self._settle(position, result)]

    def refuse(self, task: str) -> None:
        """Record that the machine cannot measure this workload. Other machines get its
        candidates."""
        assignment = self.under_way.pop(task, None)
        if assignment is not None:
            self.refused.add(assignment.machine)
            self._back(assignment.unanswered)

    def lose(self, task: str) -> list[int]:
        """Handle the loss of the machine or of its notes. Return the positions that now have their
        final result."""
        assignment = self.under_way.pop(task, None)
        if assignment is None:
            return []
        return self._again(assignment, [p for p in assignment.unanswered if p not in self.results])

    def interrupt(self) -> None:
        """Handle the loss of the scheduler and all requests. No candidate becomes a suspect."""
        for assignment in self.under_way.values():
            self._back([p for p in assignment.unanswered if p not in self.results])
        self.under_way.clear()

    def give_up(self, detail: str) -> list[int]:
        """Give the result LOST to all positions without a result, and return these positions."""
        positions = [p for p in range(self.count) if p not in self.results]
        self.under_way.clear()
        return [p for i in positions for p in self._settle(i, lost(detail))]

    def _again(self, assignment: Assignment, positions: list[int]) -> list[int]:
        if self.together:
            return self._all_again(assignment.begun)
        if not assignment.begun:
            for position in positions:
                self._unbegun[position] = self._unbegun.get(position, 0) + 1
            hopeless = any(self._unbegun[p] > MAX_UNBEGUN for p in positions)
            if not hopeless:
                self._back(positions)
                return []
        if len(positions) != 1:
            self._suspects.extend(positions)
            return []
        (position,) = positions
        self._deaths[position] = self._deaths.get(position, 0) + 1
        if self._deaths[position] >= MAX_DEATHS:
            return self._settle(position, _deadly(self._deaths[position]))
        self._suspects.append(position)
        return []

    def _all_again(self, begun: bool) -> list[int]:
        self._unreported.clear()
        self._deaths[0] = self._deaths.get(0, 0) + begun
        if self._deaths[0] >= MAX_DEATHS:
            return [p for i in range(self.count) for p in self._settle(i, _deadly(MAX_DEATHS))]
        self._waiting = deque(range(self.count))
        return []

    def _back(self, positions: list[int]) -> None:
        if self.together:
            self._unreported.clear()
            self._waiting = deque(range(self.count))
            return
        self._waiting.extendleft(reversed(positions))

    def _settle(self, position: int, result: MeasureResult) -> list[int]:
        if position in self.results:
            return []
        self.results[position] = result
        for queue in (self._waiting, self._suspects):
            if position in queue:
                queue.remove(position)
        return [position]


def lost(detail: str) -> MeasureResult:
    """Return a result LOST for a reason that does not depend on the candidate."""
    return MeasureResult(MeasureStatus.LOST, detail=detail)


def _deadly(deaths: int) -> MeasureResult:
    return lost(f"{deaths} machines of the fleet were lost while they measured this candidate")
