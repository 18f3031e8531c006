"""The measurer `--measurer dask:tcp://HOST:PORT`. It sends candidates to the machines of a
fleet."""

from __future__ import annotations

import logging
import queue
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import count

from tilewright.schedules.errors import TargetError, TilewrightError, WorkloadError
from tilewright.schedules.record import MeasureResult, Toolchain
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

from ... import timeouts
from ...process.control import Control
from ..protocol import MeasureRequest, OnResult
from .address import FleetError, parse_address
from .connection import WAKE, Line, open_line
from .dispatch import Assignment, Dispatch
from .machines import FleetMachine, able, alike, kind, largest_group
from .messages import FleetRequest, Note, Purpose
from .reservations import reservations_of, share_of
from .waiting import MachineWait, interruptible

log = logging.getLogger("tilewright.fleet")

_OWNERS = count(1)


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Fleet:
    """The machines of the scheduler at `address`. Calling the object opens a measurer on them.

    `should_stop` is called while no machine is available.
    """

    address: str
    patience_secs: float = timeouts.FLEET_WAIT_SECS
    should_stop: Callable[[], bool] = _never

    def __call__(self, workload: Workload, target: Target, seed: int) -> FleetMeasurer:
        return FleetMeasurer(self, workload, target, seed)


def read_fleet(address: str, should_stop: Callable[[], bool] | None = None) -> Fleet:
    """Return the fleet at `address`, without connecting to it.

    Raise MeasurerError for an invalid address. Raise ModuleNotFoundError if Dask is missing, so
    that a job fails before it waits for machines.
    """
    where = parse_address(address)
    if find_spec("distributed") is None:
        raise ModuleNotFoundError("a fleet needs Dask distributed", name="distributed")
    return Fleet(where, should_stop=should_stop or _never)


class FleetMeasurer:
    """A `Measurer` on machines of one kind that have joined a fleet.

    The first machines determine the group, because times of machines that are not alike are never
    mixed. Compared times and the full check come from one machine as long as it is available. If
    machines, the scheduler or the network are lost, the run loses time but no result. After
    `patience_secs` without a machine, FleetError is raised. A machine that rejects the workload, or
    fails because of a bug, gets no more requests for it. When no machine is left, the error of the
    last one is raised: WorkloadError, TargetError or RuntimeError.
    """

    def __init__(self, fleet: Fleet, workload: Workload, target: Target, seed: int) -> None:
        self._fleet, self._target, self._seed = fleet, target, seed
        self._workload = workload.to_json()
        self._line: Line | None = None
        self._like: FleetMachine | None = None
        self.home = ""
        """The address of the machine that measures compared times and full checks, or "" before it
        is chosen."""
        self.machines = 0
        """The number of machines that measured for it when it last looked."""
        self._wait = MachineWait(fleet.address, fleet.patience_secs)
        self._refused: set[str] = set()
        self._check_secs: dict[MeasureResult, float] = {}
        self._names: dict[str, str] = {}
        self._control = Control()
        self._reservations = reservations_of(fleet.address)
        self._owner = next(_OWNERS)

    def __enter__(self) -> FleetMeasurer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._hang_up()

    def attach(self, control: Control) -> None:
        """Obey `control`. Its `abort` ends every wait and cancels all requests."""
        self._control = control
        self._wait.control = control
        control.on_abort(self._wake)

    def _wake(self) -> None:
        line = self._line
        if line is not None:
            line.wake()

    @property
    def toolchain(self) -> Toolchain:
        """The toolchain of the machines. Wait for the first machine. Raise FleetError if no machine
        joins."""
        while self._like is None:
            if not self._machines():
                self._wait.go_on()
        return self._like.toolchain

    def measure(
        self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
    ) -> list[MeasureResult]:
        """Return one result per request, in order (see `Measurer.measure`)."""
        compared = any(request.compared for request in requests)
        return self._work(_Run("measure", requests, on_result or _ignore_result, together=compared))

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        """Rebuild a candidate and check it in full. The machine of the last comparison is used if
        it is available."""
        (result,) = self._work(_Run("confirm", [request], _ignore_result, together=True))
        return result

    def confirm_secs(self, result: MeasureResult) -> float:
        """Return the seconds that the machine which measured `result` predicts for its full check.
        For a result of another run, return the longest prediction of this one, 0.0 if there is
        none."""
        return self._check_secs.get(result, max(self._check_secs.values(), default=0.0))

    def _work(self, run: _Run) -> list[MeasureResult]:
        run.batch.refused = self._refused
        try:
            while not run.batch.done:
                self._control.check()
                self._advance(run)
        finally:
            self._reservations.leave(self._owner)
            if self._line is not None:
                self._line.forget(list(self._line.futures))
        return [run.batch.results[i] for i in range(run.batch.count)]

    def _advance(self, run: _Run) -> None:
        """Update the list of machines, send requests, and read notes."""
        machines = {m.address: m for m in self._machines()}
        line = self._line
        if line is None:
            self._reservations.leave(self._owner)
            run.batch.interrupt()
        else:
            for task in run.lost_requests(machines):
                log.warning("machine %s was lost", self._name(run.batch.under_way[task].machine))
                self._let_go(line, task)
                run.report(run.batch.lose(task))
            self._give_out(run, line, machines)
        able_ones = machines.keys() - self._refused
        if line is not None and (run.batch.under_way or able_ones):
            self._wait.over()
            self._take(run, line)
        elif not run.batch.done:
            self._wait_for_machines(run, machines)

    def _give_out(self, run: _Run, line: Line, machines: dict[str, FleetMachine]) -> None:
        """Send as many requests as the machines can accept in addition to those of other jobs."""
        if not run.batch.has_more:
            return
        able_ones = [address for address in machines if address not in self._refused]
        if run.batch.together and self.home in able_ones:
            able_ones = [self.home]  # so that times are comparable with the previous ones
        made: list[Assignment] = []

        def assign(places: list[str], jobs: int) -> list[Assignment]:
            share = share_of(run.batch.count, len(able_ones), jobs)
            made.extend(run.batch.assign(places, share))
            return made

        self._reservations.reserve(self._owner, able_ones, self._wake, assign)
        if not run.batch.has_more:
            self._reservations.withdraw(self._owner)
        for assignment in made:
            if run.batch.together:
                self.home = assignment.machine
            run.tasks.add(assignment.task)
            self._names[assignment.machine] = machines[assignment.machine].name
            request = FleetRequest(
                task=assignment.task,
                topic=line.topic,
                purpose=run.purpose,
                workload=self._workload,
                target=self._target,
                seed=self._seed,
                requests={position: run.requests[position] for position in assignment.unanswered},
            )
            line.submit(assignment.task, machines[assignment.machine], request.to_bytes())

    def _take(self, run: _Run, line: Line) -> None:
        """Read notes for a moment. For requests without notes, read their state in Dask."""
        for note in _notes(line, self._control):
            if note.task not in run.tasks:
                continue  # the note is from another job, or from an abandoned batch
            if note.kind == "result":
                self._reservations.answered(note.task)
                if note.result is not None and note.check_secs:
                    self._check_secs[note.result] = note.check_secs
            elif note.kind != "begun":
                line.release(note.task)
                self._reservations.release(note.task)
            run.update(note)
            if run.batch.done:
                return
        for task in list(run.batch.under_way):
            if line.is_over(task):  # its notes have arrived before, or were lost
                line.release(task)
                self._reservations.release(task)
                run.report(run.batch.end(task))
            elif (failure := line.failure(task)) is not None:
                machine = self._name(run.batch.under_way[task].machine)
                log.warning("a request failed on machine %s: %r", machine, failure)
                self._let_go(line, task)
                run.report(run.batch.lose(task))

    def _let_go(self, line: Line, task: str) -> None:
        line.forget([task])
        self._reservations.release(task)

    def _wait_for_machines(self, run: _Run, machines: dict[str, FleetMachine]) -> None:
        if run.refusal is not None and run.batch.refused.issuperset(machines):
            raise run.refusal
        if self._fleet.should_stop():
            run.report(run.batch.give_up("stopped while no machine of the fleet could measure it"))
            return
        self._wait.go_on()

    def _name(self, address: str) -> str:
        return f"{self._names.get(address, '')} ({address})"

    # -- the connection

    def _machines(self) -> list[FleetMachine]:
        """Return the machines that may measure for this job now. Without a connection there are
        none."""
        try:
            if self._line is None:
                address = self._fleet.address
                self._line = interruptible(
                    lambda: open_line(address), self._control, undo=Line.close
                )
            found = able(interruptible(self._line.machines, self._control), self._target)
        except FleetError as error:
            log.info("%s: %s", self._fleet.address, error)
            self._wait.reason = str(error)
            self._hang_up()
            return []
        if self._like is None and found:
            self._like = largest_group(found)[0]
        alike_ones = [m for m in found if self._like is not None and alike(m, self._like)]
        self.machines = len(alike_ones)
        self._wait.reason = _refusal_reason(self._target, found, alike_ones)
        return alike_ones

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is None:
            return
        if self._control.aborted:  # do not wait for a scheduler that may not answer
            threading.Thread(target=line.close, daemon=True).start()
        else:
            with self._control.elsewhere():
                line.close()


@dataclass(slots=True)
class _Run:
    """One call of `measure` or `confirm`."""

    purpose: Purpose
    requests: Sequence[MeasureRequest]
    on_result: OnResult
    together: bool
    batch: Dispatch = field(init=False)
    tasks: set[str] = field(default_factory=set)
    """The names of all requests that were sent for it."""
    refusal: TilewrightError | RuntimeError | None = None

    def __post_init__(self) -> None:
        self.batch = Dispatch(len(self.requests), lambda: uuid.uuid4().hex, self.together)

    def lost_requests(self, machines: dict[str, FleetMachine]) -> list[str]:
        return [t for t, a in self.batch.under_way.items() if a.machine not in machines]

    def update(self, note: Note) -> None:
        match note.kind:
            case "begun":
                self.batch.begin(note.task)
            case "result":
                if note.result is not None:
                    self.report(self.batch.answer(note.task, note.position, note.result))
            case "ended":
                self.report(self.batch.end(note.task))
            case "refused" | "bug":
                self.refusal = _refusal(note)
                log.warning("a machine gets no more of these candidates: %s", self.refusal)
                self.batch.refuse(note.task)

    def report(self, settled: Sequence[int]) -> None:
        for position in settled:
            self.on_result(position, self.batch.results[position])


def _refusal_reason(
    target: Target, found: Sequence[FleetMachine], alike_ones: Sequence[FleetMachine]
) -> str:
    if alike_ones:
        return "the machines that have joined cannot measure this workload"
    if found:
        return f"{len(found)} of this kind have joined, but are unlike those that began this job"
    threads = "1 thread" if target.threads == 1 else f"{target.threads} threads"
    return f"none of kind {target.cpu} ({kind(target)[:12]}) with {threads} has joined"


def _notes(line: Line, control: Control) -> Iterator[Note]:
    """Yield the messages (`Note`) that machines have sent. Wait up to `timeouts.FLEET_POLL_SECS`
    for the first one."""
    timeout_secs = timeouts.FLEET_POLL_SECS
    while True:
        try:
            with control.elsewhere():
                received = line.received.get(timeout=timeout_secs)
        except queue.Empty:
            return
        timeout_secs = 0.0
        if received is None:
            line.look_again()
        elif received != WAKE:
            yield Note.from_bytes(received)


def _refusal(note: Note) -> TilewrightError | RuntimeError:
    if note.kind == "bug":
        return RuntimeError(f"a machine of the fleet failed in our own code:\n{note.detail}")
    if note.error == "WorkloadError":
        return WorkloadError(note.detail, code=note.code)
    return TargetError(note.detail)


def _ignore_result(position: int, result: MeasureResult) -> None:
    """The default of `on_result`."""
