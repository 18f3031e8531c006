"""A full check that a runner performs, and its use of the machine.

Its first case is timed, and the machine's lock is held from then on. The caller may leave the check
after the first case: the other cases, which are not timed, then run on idle cores without the lock.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from tilewright.schedules.record import MeasureResult

from ... import timeouts
from ...compiling.pool import Compiled
from ...process.control import Activity
from .limits import most_full_check_secs
from .processes import Processes
from .runner_client import RunnerClient


@dataclass
class RunningCheck:
    """The full check of `built` that was submitted to the runner, described by `what`."""

    processes: Processes
    built: Compiled
    what: str
    predicted_secs: float
    _leaves: bool = False
    _beside: bool = False
    _holds: bool = False
    _held: ExitStack = field(default_factory=ExitStack)
    _result: MeasureResult | None = None
    _error: Exception | None = None

    def __post_init__(self) -> None:
        self._start = self.processes.control.clock()
        self._doing()
        self.runner.on_note = self._on_note

    @property
    def runner(self) -> RunnerClient:
        return self.processes.runner

    @property
    def running(self) -> bool:
        """Whether there is no result or error yet."""
        return self._result is None and self._error is None

    def leave(self) -> bool:
        """Wait until only cases are left that are not timed. Return whether the check still
        runs."""
        self._leaves = True
        while not (self._beside or self.runner.has_answer(timeouts.MEASURE_POLL_SECS)):
            self._look()
        if not self._beside:
            self.settle()
        return self.running

    def settle(self) -> None:
        """Wait for the end of the check. `result` raises its errors, because the measurer of
        another workload may wait here."""
        if not self.running:
            return
        self._leaves = False
        self._release()  # from now on, the runner uses busy cores too
        try:
            self._result = self.processes.result(self.built, self.processes.answer(self._look))
        except Exception as error:  # noqa: BLE001  # raised by `result`
            self._error = error
        finally:
            self._release()

    def result(self) -> MeasureResult:
        """Wait for the result and return it."""
        self.settle()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def close(self) -> None:
        """Release the machine, and end the runner if its result is no longer needed."""
        self._release()
        if self.runner.busy:
            self.runner.close()

    def _look(self) -> None:
        self.processes.end_late(self._start, most_full_check_secs(self.predicted_secs))

    def _on_note(self, note: dict[str, Any]) -> None:
        """Hold the machine before a case runs. Let other runs use it if they need it."""
        control = self.processes.control
        control.check()
        if self._leaves and note["case"]:
            if not self._beside:
                self._release()
                self._held.enter_context(self.runner.in_background())
                self._beside = True
            return
        self._doing(note["case"], note["of"])
        if control.is_wanted():
            self._release()
            with self.runner.in_background():
                control.pause()
        if not self._holds:
            self._held.enter_context(self.processes.machine())
            self._holds = True

    def _release(self) -> None:
        self._held.close()
        self._holds = False

    def _doing(self, done: int = 0, total: int = 0) -> None:
        self.processes.doing(Activity("full check", self.what, done, total, self.predicted_secs))
