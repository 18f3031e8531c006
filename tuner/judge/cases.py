"""The cases the runner holds candidates of a workload against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from schedules.trace import Trace
from schedules.workload.tensors import Tensor
from schedules.workload.workload import Workload

from ..arrays import Array
from . import compare
from .input_plan import InputKind
from .oracle import Oracle
from .special_values import special_case

DEFAULT_CASES = "tuner.judge.cases:open_cases"

DEFAULT_CHECK_SECS = 4.0
"""Seconds of computing that the reference of one full check may take, as predicted from counts."""


class Case(Protocol):
    """Inputs with a known answer; `compare.Case` is one.

    `exact` says that only one result is right, bit for bit.
    """

    @property
    def inputs(self) -> tuple[Array, ...]: ...

    @property
    def exact(self) -> bool: ...

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
    def quick(self) -> Case:
        """What every candidate must pass before it is timed; also what it is timed on."""
        ...

    def full(self) -> Iterator[Case]:
        """What a candidate must pass before it is best, `quick` first."""
        ...


@dataclass(frozen=True)
class _Unbuilt(compare.Case):
    """A case that was not built, taken for one that judges everything."""

    @property
    def judged_fraction(self) -> float:
        return 1.0


@dataclass(frozen=True)
class _Planned(Oracle):
    """An oracle that builds no case: what it would yield is counted."""

    def case(self, kind: InputKind, seed: int) -> compare.Case:
        return _Unbuilt(kind, seed, False, (), ())


@dataclass(frozen=True)
class WorkloadCases:
    """The cases of a workload: those of its oracle, and one with NaN and infinities."""

    oracle: Oracle

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return self.oracle.workload.arguments

    @property
    def quick(self) -> Case:
        return self.oracle.quick

    @cached_property
    def planned(self) -> int:
        """How many cases `full` should yield: those whose inputs turn out to judge nothing are
        left out of it."""
        oracle = self.oracle
        unbuilt = _Planned(oracle.workload, oracle.seed, oracle.rewrites)
        return sum(1 for _ in unbuilt.full()) + 1

    def full(self) -> Iterator[Case]:
        yield from self.oracle.full()
        oracle = self.oracle
        rewritten = oracle.rewritten if oracle.rewrites else None
        special = special_case(
            oracle.workload, rewritten, positive=oracle.plan.positive, seed=oracle.seed
        )
        if special is not None:
            yield special


def open_cases(document: dict[str, Any]) -> Cases:
    """The cases of `document["workload"]` with the inputs `document["seed"]` fixes, for kernels
    whose traces begin with `document["rewrites"]`, if there are any."""
    workload = Workload.from_json(document["workload"])
    rewrites = Trace.from_json(document.get("rewrites", [])).rewrites
    return WorkloadCases(Oracle(workload, document["seed"], rewrites))
