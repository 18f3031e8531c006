"""The protocol between search and machine: candidates in, typed results out.

Implementations: local processes, the machines of a fleet, recorded timings, a simulated machine.
Each is held to `tests/contracts/measurer_contract.py`.
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
    """There is no such measurer, or its file of timings cannot be used."""

    code = "bad_measurer"
    category = ErrorCategory.INVALID
    title = "Unknown measurer, or invalid timings file"
    advice = "local, replay:FILE, simulated:FILE or dask:tcp://HOST:PORT will do; docs/ says more."


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """One candidate to measure. `trial` numbers candidates from 1 within a tuning run.

    `compared`: the times of its batch decide between candidates, so all come from one machine.
    """

    trial: int
    trace: Trace
    compared: bool = False


OnResult = Callable[[int, MeasureResult], None]


class Measurer(Protocol):
    """Measures candidates of one workload on one target. A failure is a result, never raised.

    Use it as a context manager: leaving it ends every process it started.
    """

    @property
    def toolchain(self) -> Toolchain: ...

    def measure(
        self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
    ) -> list[MeasureResult]:
        """One result a request, in order. Candidates that pass verification are timed.

        `on_result` is called with each result as soon as it is known, in any order, and its
        position in `requests`. Its exceptions end the batch and pass through; the measurer stays
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
        """Called once before anything is measured, by callers that know the bound."""
        ...


@runtime_checkable
class PredictsCheck(Protocol):
    """A measurer that predicts its full check, so that a run can reserve the time."""

    def confirm_secs(self, result: MeasureResult) -> float:
        """Predicted time of `confirm` for a candidate with this result."""
        ...


class MeasurerFactory(Protocol):
    """Opens a measurer for a workload on a target."""

    def __call__(self, workload: Workload, target: Target, seed: int) -> Measurer: ...


def measure_each(
    requests: Sequence[MeasureRequest],
    answer: Callable[[MeasureRequest], MeasureResult],
    on_result: OnResult | None,
) -> list[MeasureResult]:
    """`Measurer.measure` for a measurer that takes one candidate after the other."""
    results: list[MeasureResult] = []
    for position, request in enumerate(requests):
        results.append(answer(request))
        if on_result is not None:
            on_result(position, results[-1])
    return results
