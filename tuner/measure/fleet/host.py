"""The part of a fleet that runs on each machine. The coordinator submits `run` to Dask.

`run` is executed in a thread of a Dask worker. The processes of a local measurer compile and time,
and acquire the machine's lock. The Dask worker itself times nothing.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.schedules.errors import TargetError, WorkloadError
from tilewright.schedules.record import MeasureResult
from tilewright.schedules.target import Target
from tilewright.schedules.workload.workload import Workload

from ... import timeouts
from ...process.control import Control, Controllable, MeasurementAborted, OutOfTime
from ..local_spec import local_factory
from ..protocol import Measurer, PredictsCheck
from .machines import kind
from .messages import FleetRequest, MachineDescription, Note

MAX_OPEN_MEASURERS = 2
"""The number of workloads that stay open with their processes, because two jobs may alternate on a
machine."""


class RequestAbandoned(BaseException):
    """The coordinator cancelled a request. It is a BaseException, because it is not a failure."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A measurer and its control. The measurer is closed if the control was aborted."""

    measurer: Measurer
    control: Control


@dataclass(slots=True)
class FleetHost:
    """The measurers that are open on this machine, and the number of candidates that it has
    measured.

    One thread calls `run_request`, for one request at a time. Any thread may call the other
    methods.
    """

    description: MachineDescription
    measured: int = 0
    _open: OrderedDict[tuple[Any, ...], _Opened] = field(default_factory=OrderedDict)
    _turn: threading.Lock = field(default_factory=threading.Lock)
    _idle_since: float = field(default_factory=time.monotonic)

    @property
    def busy(self) -> bool:
        return self._turn.locked()

    def run_request(
        self, request: FleetRequest, report: Callable[[Note], None], is_wanted: Callable[[], bool]
    ) -> None:
        """Measure the candidates of `request`, and `report` each result when it is known.

        `is_wanted` is called after each candidate, and from another thread a few times per second.
        When it returns False, native code is killed and RequestAbandoned is raised.
        """
        with self._turn:
            report(Note(request.task, "begun"))
            try:
                self._carry_out(request, report, is_wanted)
            except (TargetError, WorkloadError) as error:
                code = getattr(error, "code", "")
                report(Note(request.task, "refused", error=type(error).__name__, code=code,
                          detail=str(error)))  # fmt: skip
            # Such a run has no time budget, so the check itself takes too long.
            except OutOfTime as over:
                report(Note(request.task, "refused", error="WorkloadError", code=over.code,
                          detail=str(over)))  # fmt: skip
            except MeasurementAborted:
                raise RequestAbandoned from None
            except Exception:
                report(Note(request.task, "bug", detail=traceback.format_exc()))
                raise
            else:
                report(Note(request.task, "ended"))
            finally:
                self._idle_since = time.monotonic()

    def _carry_out(
        self, request: FleetRequest, report: Callable[[Note], None], is_wanted: Callable[[], bool]
    ) -> None:
        positions = list(request.requests)

        identity, opened = self._opened(request)

        def on_result(i: int, result: MeasureResult) -> None:
            self.measured += 1
            check_secs = 0.0
            if result.ok and isinstance(opened.measurer, PredictsCheck):
                check_secs = opened.measurer.confirm_secs(result)
            report(Note(request.task, "result", positions[i], result, check_secs))
            if not is_wanted():
                raise RequestAbandoned

        try:
            with _watched(opened.control, is_wanted):
                if request.purpose == "confirm":
                    on_result(0, opened.measurer.confirm(request.requests[positions[0]]))
                else:
                    requests = [request.requests[p] for p in positions]
                    opened.measurer.measure(requests, on_result)
        finally:
            if opened.control.aborted:
                del self._open[identity]
                opened.measurer.__exit__(None, None, None)

    def close_idle(self) -> None:
        if time.monotonic() - self._idle_since > timeouts.HOST_IDLE_SECS and self._turn.acquire(
            blocking=False
        ):
            try:
                self.close()
            finally:
                self._turn.release()

    def close(self) -> None:
        while self._open:
            _, opened = self._open.popitem()
            opened.measurer.__exit__(None, None, None)

    def _opened(self, request: FleetRequest) -> tuple[tuple[Any, ...], _Opened]:
        """Return the key in `_open`, and the measurer of the request's workload. The measurer is
        opened if necessary."""
        target = self._target(request.target)
        identity = (str(request.workload), target.key, request.seed)
        if identity not in self._open:
            while len(self._open) >= MAX_OPEN_MEASURERS:
                _, oldest = self._open.popitem(last=False)
                oldest.measurer.__exit__(None, None, None)
            workload = Workload.from_json(request.workload)
            factory = local_factory(self.description.measurer)
            assert factory is not None, "`describe` accepts only measurers of one machine"
            control = Control()
            measurer = factory(workload, target, request.seed)
            if isinstance(measurer, Controllable):
                measurer.attach(control)
            self._open[identity] = _Opened(measurer.__enter__(), control)
        self._open.move_to_end(identity)
        return identity, self._open[identity]

    def _target(self, wanted: Target) -> Target:
        """Return `wanted` with this machine's probes. Raise TargetError if this machine is of
        another kind."""
        if kind(wanted) != self.description.target.key:
            raise TargetError(
                f"machine {self.description.name} is {self.description.target.cpu}, not a machine "
                f"of kind {kind(wanted)[:12]} ({wanted.cpu})"
            )
        return replace(wanted, probes=self.description.target.probes)


@contextmanager
def _watched(control: Control, is_wanted: Callable[[], bool]) -> Iterator[None]:
    """Abort `control` if the request is cancelled during the block."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(timeouts.REQUEST_POLL_SECS):
            if not is_wanted():
                control.abort()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


_host: FleetHost | None = None


def set_up(description: MachineDescription) -> FleetHost:
    """Make this process a machine of a fleet."""
    global _host  # noqa: PLW0603  # Dask calls a module-level function, so the host must be a global
    _host = FleetHost(description)
    return _host


def run(payload: bytes) -> None:
    """Measure a request. Dask calls this. Notes are published under the topic of the request."""
    from distributed import get_worker

    if _host is None:
        raise RuntimeError("this Dask worker cannot measure: start it with `tilewright worker`")
    worker = get_worker()
    request = FleetRequest.from_bytes(payload)
    key = worker.get_current_task()

    def is_wanted() -> bool:
        state = worker.state.tasks.get(key)
        return state is not None and state.state == "executing"

    with suppress(RequestAbandoned):
        _host.run_request(
            request, lambda note: worker.log_event(request.topic, note.to_bytes()), is_wanted
        )
