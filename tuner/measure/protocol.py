"""The protocol between search and machine: candidates as input, typed results as output.

It is implemented by local processes, fleets, recorded timings and a simulated machine. All must
pass `tests/contracts/measurer_contract.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tilewright.schedules.errors import ErrorCategory, TilewrightError
from tilewright.schedules.record import MeasureResult, Toolchain
from tilewright.schedules.target import Target
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.workload import Workload

from ..machine.bound import Bound


class MeasurerError(TilewrightError):
    """The measurer does not exist, or its file of timings cannot be used."""

    code = "bad_measurer"
    category = ErrorCategory.INVALID
    title = "Unknown measurer, or invalid timings file"
    advice = "Use local, replay:FILE, simulated:FILE or dask:tcp://HOST:PORT; see docs/."


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """One candidate to measure. `trial` numbers candidates from 1 within a tuning run.

    If `compared`, the times of the batch decide between candidates, so one machine measures all.
    """

    trial: int
    trace: Trace
    compared: bool = False


OnResult = Callable[[int, MeasureResult], None]


class Measurer(Protocol):
    """Measures candidates of one workload on one target. A failure is a result, never an exception.

    It is a context manager: leaving it ends every process that it started.
    """

    @property
    def toolchain(self) -> Toolchain: ...

    def measure(
        self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
    ) -> list[MeasureResult]:
        """Return one result per request, in order. Candidates that pass verification are timed.

        `on_result` is called with the position in `requests` and the result as soon as a result is
        known, in any order. Its exceptions end the batch and propagate; the measurer remains
        usable.
        """
        ...

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        """Rebuild in a fresh process and check in full; an OK result has times like `measure`."""
        ...

    def __enter__(self) -> Measurer: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class TakesBound(Protocol):
    """A measurer that compares times with the bound of the workload."""

    def take_bound(self, bound: Bound) -> None:
        """Set the bound, which the caller knows already; called before the first measurement."""
        ...


@runtime_checkable
class PredictsCheck(Protocol):
    """A measurer that predicts its full check, so that a run can reserve the time."""

    def confirm_secs(self, result: MeasureResult) -> float:
        """Return the predicted seconds of `confirm` for a candidate with this result."""
        ...


class MeasurerFactory(Protocol):
    """A factory that opens a measurer for a workload on a target."""

    def __call__(self, workload: Workload, target: Target, seed: int) -> Measurer: ...


def measure_each(
    requests: Sequence[MeasureRequest],
    answer: Callable[[MeasureRequest], MeasureResult],
    on_result: OnResult | None,
) -> list[MeasureResult]:
    """Implement `Measurer.measure` for a measurer that measures candidates one after the other."""
    results: list[MeasureResult] = []
    for position, request in enumerate(requests):
        results.append(answer(request))
        if on_result is not None:
            on_result(position, results[-1])
    return results
