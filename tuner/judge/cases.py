"""The cases with which the runner checks candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilewright.schedules.errors import WorkloadError
from tilewright.schedules.trace import Trace
from tilewright.schedules.workload.tensors import Tensor
from tilewright.schedules.workload.workload import Workload

from .. import timeouts
from ..arrays import Array
from .oracle import Oracle
from .special_inputs import DRAWS, SpecialDraw, further_draws
from .special_values import special_case

DEFAULT_CASES = "tilewright.tuner.judge.cases:open_cases"


class CheckCase(Protocol):
    """Inputs with known correct outputs. `compare.Case` and `SpecialCase` implement it.

    `exact` is True if each output has only one correct value.
    """

    @property
    def inputs(self) -> tuple[Array, ...]: ...

    @property
    def exact(self) -> bool: ...

    @property
    def sampled_fraction(self) -> float:
        """The fraction of elements that are compared, in the output with the lowest fraction."""
        ...

    def check(self, outputs: Sequence[Array]) -> str | None:
        """Return one line about the error in `outputs` (in argument order), or None if they are
        correct."""
        ...

    def error(self, outputs: Sequence[Array]) -> float | None:
        """Return the largest error relative to the scale of the case, or None if the case has no
        scale."""
        ...


class Cases(Protocol):
    """The cases of one kernel. `tensors` are the arguments of a call, inputs first.

    Building a case may take seconds.
    """

    @property
    def tensors(self) -> tuple[Tensor, ...]: ...

    @property
    def quick(self) -> CheckCase:
        """The case that every candidate must pass before it is timed. Its inputs are also timed."""
        ...

    def full(self) -> Iterator[CheckCase]:
        """Yield the cases that a candidate must pass before it becomes best, `quick` first."""
        ...


@dataclass(frozen=True)
class WorkloadCases:
    """The cases of a workload: those of its oracle, then those with special values."""

    oracle: Oracle

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.oracle.workload.arguments

    @property
    def quick(self) -> CheckCase:
        return self.oracle.quick

    @property
    def planned(self) -> int:
        """The largest number of cases that `full` yields."""
        return self.oracle.planned + 1 + len(self._single_draws)

    @property
    def _single_draws(self) -> list[tuple[SpecialDraw]]:
        """Further draws of special values. Each becomes a separate case."""
        workload = self.oracle.workload
        if not any(t.dtype.is_float for t in workload.inputs):
            return []
        return [(draw,) for draw in further_draws(workload)]

    def full(self) -> Iterator[CheckCase]:
        yield from self.oracle.full()
        oracle = self.oracle
        rewritten = oracle.rewritten if oracle.rewrites else None
        single_draws = self._single_draws
        for number, draws in enumerate((DRAWS, *single_draws)):
            special = special_case(
                oracle.workload,
                rewritten,
                positive=oracle.plan.positive,
                seed=oracle.seed + number,
                secs=oracle.case_secs / (len(single_draws) if number else 1),
                draws=draws,
            )
            if special is not None:
                yield special


def open_cases(document: dict[str, Any]) -> Cases:
    """Return the cases of `document["workload"]`. `document["seed"]` determines the inputs.

    The cases apply to kernels whose traces begin with `document["rewrites"]`.
    `document["check_secs"]` limits the predicted time of the reference in a full check.
    """
    workload = Workload.from_json(document["workload"])
    rewrites = Trace.from_json(document.get("rewrites", [])).rewrites
    check_secs = document.get("check_secs", timeouts.REFERENCE_SECS)
    return WorkloadCases(Oracle(workload, document["seed"], rewrites, check_secs))


def refuse_unaffordable(workload: Workload, check_secs: float = timeouts.REFERENCE_SECS) -> None:
    """Raise WorkloadError if the predicted time of the reference exceeds `check_secs` even for the
    smallest case."""
    least_secs = Oracle(workload, check_secs=check_secs).least_secs
    if least_secs > check_secs:
        raise WorkloadError(
            f"the reference needs about {least_secs:.2g} s for one check case, and a full check has"
            f" {check_secs:.2g} s: allow more seconds, or make the reductions shorter",
            code="too_large",
        )
