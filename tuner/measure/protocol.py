"""The protocol between search and machine. Candidates are the input, and typed results the output.

Local processes, fleets, recorded timings and a simulated machine implement it. All of them must
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
    """There is no such measurer, or its file of timings cannot be used."""

    code = "bad_measurer"
    category = ErrorCategory.INVALID
    title = "Unknown measurer, or invalid timings file"
    advice = "Use local, replay:FILE, simulated:FILE or dask:tcp://HOST:PORT; see docs/."


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """One candidate to measure."""

    trial: int
    """The number of the candidate within a tuning run, from 1."""
    trace: Trace
    compared: bool = False
    """If True, the times of the batch decide between candidates, so one machine measures all of
    them."""


OnResult = Callable[[int, MeasureResult], None]


class Measurer(Protocol):
    """A measurer of candidates of one workload on one target. The failure of a candidate is a
    result, never an exception.

    It is a context manager. Leaving it ends every process that it started.
    """

    @property
    def toolchain(self) -> Toolchain: ...

    def measure(
        self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
    ) -> list[MeasureResult]:
        """Return one result per request, in order. Candidates that pass verification are timed.

        `on_result` is called as soon as a result is known, in any order, with the position in
        `requests` and the result. An exception that it raises ends the batch and is raised by this
        method. The measurer can be used afterwards.
        """
        ...

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        """Rebuild a candidate in a fresh process, check it in full and return the result. If its
        status is OK, it has times, like a result of `measure`."""
        ...

    def __enter__(self) -> Measurer: ...

    def __exit__(self, *exc: object) -> None: ...


@runtime_checkable
class TakesBound(Protocol):
    """A measurer that compares times with the bound of the workload."""

    def take_bound(self, bound: Bound) -> None:
        """Set the bound, which the caller already knows. This is called before the first
        measurement."""
        ...


@runtime_checkable
class PredictsCheck(Protocol):
    """A measurer that predicts the time of its full check, so that a run can reserve this time."""

    def confirm_secs(self, result: MeasureResult) -> float:
        """Return the predicted seconds of `confirm` for a candidate with this result."""
        ...


@runtime_checkable
class ConfirmsBeside(Protocol):
    """A measurer whose full check can run while its caller does other work."""

    def begin_confirm(self, request: MeasureRequest) -> bool:
        """Begin `confirm`: do what has to run alone, which is everything that is timed. Return
        whether the rest is running now. The next call is `confirm` for the same request, which
        waits for the result."""
        ...


@runtime_checkable
class MeasuresElsewhere(Protocol):
    """A measurer that uses other machines. It waits for them in `Control.elsewhere` blocks of the
    control that is attached, during which its caller may call other measurers."""

    @property
    def machines(self) -> int:
        """The number of machines that measured for it when it last looked."""
        ...


class MeasurerFactory(Protocol):
    """A factory that opens a measurer for a workload on a target."""

    def __call__(self, workload: Workload, target: Target, seed: int) -> Measurer: ...


def measure_each(
    requests: Sequence[MeasureRequest],
    answer: Callable[[MeasureRequest], MeasureResult],
    on_result: OnResult | None,
) -> list[MeasureResult]:
    """Return the results of `Measurer.measure`, for a measurer that measures candidates one after
    the other with `answer`."""
    results: list[MeasureResult] = []
    for position, request in enumerate(requests):
        results.append(answer(request))
        if on_result is not None:
            on_result(position, results[-1])
    return results
