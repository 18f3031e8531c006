"""The seam between search and machine: candidates in, typed results out.

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
    """A measurer that does not exist, or a file of timings that cannot be used."""

    code = "bad_measurer"
    category = ErrorCategory.INVALID
    title = "No such measurer, or a bad file of timings"
    advice = "local, replay:FILE, simulated:FILE or dask:tcp://HOST:PORT will do; docs/ says more."


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """One candidate to measure. `trial` numbers candidates from 1 within a tuning run.

    The times of a batch of `compared` ones decide between them: all come from one machine.
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

        `on_result` hears of each as soon as it is known, in any order, by its position in
        `requests`. What it raises ends the batch and passes through; the measurer stays usable.
        """
        ...

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        """Rebuild in a fresh process and check in full; OK carries the earlier kind of time."""
        ...

    def __enter__(self) -> Measurer: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class TakesBound(Protocol):
    """A measurer that holds kernels against the bound of the work, where its caller knows it."""

    def take_bound(self, bound: Bound) -> None:
        """Called once, before anything is measured."""
        ...


@runtime_checkable
class PredictsCheck(Protocol):
    """A measurer whose full check takes time that a run has to keep in reserve."""

    def confirm_secs(self, result: MeasureResult) -> float:
        """How long `confirm` should take of a candidate with this result."""
        ...


class MeasurerFactory(Protocol):
    """Opens a measurer for a workload on a target."""

    def __call__(self, workload: Workload, target: Target, seed: int) -> Measurer: ...


def measure_each(
    requests: Sequence[MeasureRequest],
    answer: Callable[[MeasureRequest], MeasureResult],
    on_result: OnResult | None,
) -> list[MeasureResult]:
    """`Measurer.measure` for one that takes its candidates one after the other."""
    results: list[MeasureResult] = []
    for position, request in enumerate(requests):
        results.append(answer(request))
        if on_result is not None:
            on_result(position, results[-1])
    return results
