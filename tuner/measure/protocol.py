"""The seam between search and machine: candidates in, typed results out.

Implementations: local processes, recorded timings, a simulated machine. Each is held to
`tests/contracts/measurer_contract.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from schedules.record import MeasureResult, Toolchain
from schedules.target import Target
from schedules.trace import Trace
from schedules.workload import Workload


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """One candidate to measure. `trial` numbers candidates from 1 within a tuning run."""

    trial: int
    trace: Trace


class Measurer(Protocol):
    """Measures candidates of one workload on one target. A failure is a result, never raised.

    Use it as a context manager: leaving it ends every process it started.
    """

    @property
    def toolchain(self) -> Toolchain: ...

    def measure(self, requests: Sequence[MeasureRequest]) -> list[MeasureResult]:
        """One result a request, in order. Candidates that pass verification are timed."""
        ...

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        """Rebuild in a fresh process and check in full; OK carries the earlier kind of time."""
        ...

    def __enter__(self) -> Measurer: ...

    def __exit__(self, *exc: object) -> None: ...


class MeasurerFactory(Protocol):
    """Opens a measurer for a workload on a target."""

    def __call__(self, workload: Workload, target: Target, seed: int) -> Measurer: ...
