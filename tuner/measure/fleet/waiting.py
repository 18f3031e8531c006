"""Waits for machines and for the network. An abort ends them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ... import timeouts
from ...process.control import Control
from .address import FleetError

log = logging.getLogger("tilewright.fleet")

T = TypeVar("T")


def interruptible(
    call: Callable[[], T], control: Control, *, undo: Callable[[T], None] = lambda result: None
) -> T:
    """Run `call` in a separate thread. Return its result or raise its exception.

    Raise MeasurementAborted when `control` is aborted. The call then continues in its thread, and
    `undo` is called with its result.
    """
    return _InterruptibleCall(call, undo).outcome(control)


class _InterruptibleCall(Generic[T]):
    def __init__(self, call: Callable[[], T], undo: Callable[[T], None]) -> None:
        self._call, self._undo = call, undo
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._abandoned = False
        self._lock = threading.Lock()
        self._over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            result = self._call()
            with self._lock:
                self._results.append(result)
                abandoned = self._abandoned
            if abandoned:
                self._undo(result)
        except BaseException as error:  # noqa: BLE001  # raised again by `outcome`
            self._error = error
        finally:
            self._over.set()

    def outcome(self, control: Control) -> T:
        with control.elsewhere():
            while not self._over.wait(timeouts.ABORT_POLL_SECS):
                with self._lock:
                    self._abandoned = control.aborted and not self._results
                if self._abandoned:
                    control.check()
        if self._error is not None:
            raise self._error
        return self._results[0]


@dataclass(slots=True)
class MachineWait:
    """A wait for a machine, and the `reason` for it. Both are reported to `control`."""

    address: str
    patience_secs: float
    reason: str = ""
    control: Control = field(default_factory=Control)
    _since: float | None = None
    _remark_at: float = timeouts.FIRST_REPORT_SECS

    def over(self) -> None:
        """End the wait, because a machine can measure."""
        if self._remark_at > timeouts.FIRST_REPORT_SECS:
            self.control.waiting("")
        self._since, self._remark_at = None, timeouts.FIRST_REPORT_SECS

    def go_on(self) -> None:
        """Wait a moment. Raise FleetError when the wait exceeds `patience_secs`."""
        self.control.check()
        now = time.monotonic()
        if self._since is None:
            self._since = now
        waited_secs = now - self._since
        if waited_secs >= self.patience_secs:
            raise FleetError(
                f"waited {waited_secs:.0f} s for a machine of the fleet: {self.reason}; "
                f"add one by: tilewright worker --join {self.address}"
            )
        if waited_secs >= self._remark_at:
            self._remark_at += timeouts.REPORT_SECS
            left_secs = self.patience_secs - waited_secs
            log.warning("waiting up to %.0f s more for a machine: %s", left_secs, self.reason)
            self.control.waiting(f"a machine of the fleet: {self.reason}")
        with self.control.elsewhere():
            time.sleep(timeouts.FLEET_RETRY_SECS)
