"""The cases the runner holds candidates of a workload against."""

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
    """Inputs with a known answer; `compare.CheckCase` is one.

    `exact` says that only one result is right, bit for bit.
    """

    @property
    def inputs(self) -> tuple[Array, ...]: ...

    @property
    def exact(self) -> bool: ...

    @property
    def sampled_fraction(self) -> float:
        """Elements that are compared, of all elements of the output where they are fewest."""
        ...

    def check(self, outputs: Sequence[Array]) -> str | None:
        """What is wrong with arrays in the order of the outputs, None if nothing."""
        ...

    def error(self, outputs: Sequence[Array]) -> float | None:
        """The largest error relative to what the case names, None if it names nothing."""
        ...


class Cases(Protocol):
    """`tensors` are the arguments of a call, inputs first. Building a case may take seconds."""

    @property
    def tensors(self) -> tuple[Tensor, ...]: ...

    @property
    def quick(self) -> CheckCase:
        """What every candidate must pass before it is timed; also what it is timed on."""
        ...

    def full(self) -> Iterator[CheckCase]:
        """What a candidate must pass before it is best, `quick` first."""
        ...


@dataclass(frozen=True)
class WorkloadCases:
    """The cases of a workload: those of its oracle, and one with NaN and infinities."""

    oracle: Oracle

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.oracle.workload.arguments

    @property
    def quick(self) -> CheckCase:
        return self.oracle.quick

    @property
    def planned(self) -> int:
        """How many cases `full` has at most."""
        return self.oracle.planned + 1 + len(self._alone)

    @property
    def _alone(self) -> list[tuple[SpecialDraw]]:
        """Further draws of special values, a case each."""
        workload = self.oracle.workload
        if not any(t.dtype.is_float for t in workload.inputs):
            return []
        return [(draw,) for draw in further_draws(workload)]

    def full(self) -> Iterator[CheckCase]:
        yield from self.oracle.full()
        oracle = self.oracle
        rewritten = oracle.rewritten if oracle.rewrites else None
        alone = self._alone
        for number, draws in enumerate((DRAWS, *alone)):
            special = special_case(
                oracle.workload,
                rewritten,
                positive=oracle.plan.positive,
                seed=oracle.seed + number,
                secs=oracle.case_secs / (len(alone) if number else 1),
                draws=draws,
            )
            if special is not None:
                yield special


def open_cases(document: dict[str, Any]) -> Cases:
    """The cases of `document["workload"]` with the inputs `document["seed"]` fixes, for kernels
    whose traces begin with `document["rewrites"]`, if there are any. The reference takes up to
    `document["check_secs"]` for a full check, as predicted from counts."""
    workload = Workload.from_json(document["workload"])
    rewrites = Trace.from_json(document.get("rewrites", [])).rewrites
    check_secs = document.get("check_secs", timeouts.REFERENCE_SECS)
    return WorkloadCases(Oracle(workload, document["seed"], rewrites, check_secs))


def refuse_unaffordable(workload: Workload, check_secs: float = timeouts.REFERENCE_SECS) -> None:
    """WorkloadError where not even the smallest case fits a full check's `check_secs`."""
    least_secs = Oracle(workload, check_secs=check_secs).least_secs
    if least_secs > check_secs:
        raise WorkloadError(
            f"to verify one set of outputs takes the reference about {least_secs:.2g} s, and a full"
            f" check has {check_secs:.2g} s: give more seconds, or make the reductions shorter",
            code="too_large",
        )
