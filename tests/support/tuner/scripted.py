"""A measurer that answers as a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from tilewright.schedules.record import MeasureResult, MeasureStatus, Toolchain
from tilewright.tuner.measure.protocol import MeasureRequest, OnResult, measure_each


@dataclass
class Scripted:
    """A measurer that answers with what a function says, and counts."""

    answer: Callable[[MeasureRequest], MeasureResult]
    confirmed: Callable[[MeasureRequest], MeasureResult] | None = None
    requests: list[MeasureRequest] = field(default_factory=list)
    raced: list[MeasureRequest] = field(default_factory=list)
    confirmations: list[MeasureRequest] = field(default_factory=list)
    toolchain: Toolchain = field(default_factory=lambda: Toolchain(1, "0.50", "22"))

    def measure(
        self, requests: Sequence[MeasureRequest], on_result: OnResult | None = None
    ) -> list[MeasureResult]:
        # The last race asks again for what was measured, and stores nothing.
        (self.raced if on_result is None else self.requests).extend(requests)
        return measure_each(requests, self.answer, on_result)

    def confirm(self, request: MeasureRequest) -> MeasureResult:
        self.confirmations.append(request)
        return (self.confirmed or self.answer)(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def ok(secs: float) -> MeasureResult:
    return MeasureResult(MeasureStatus.OK, (secs, secs), secs)
