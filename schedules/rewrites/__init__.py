"""Rewrites: the first steps of a trace, which change the expression and not the loops.

A primitive keeps every value up to the order of sums. A rewrite computes the same values with other
operations and so has an error of its own: `stated_error` bounds it, and a workload accepts only
rewrites whose error it allows (`Workload.allowed_error`; None allows none). A rewrite that only
reassociates sums and products states 0: it is legal for every workload if infinities, NaN and signs
of zeros are preserved, otherwise only for workloads that allow some error.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, get_args

from ..workload.workload import Workload
from .common_stage import ExtractCommonStage
from .gather_over_taps import GatherOverTaps
from .permute_axes import PermuteAxes
from .precompute_factors import PrecomputeFactors
from .winograd import Winograd

Rewrite: TypeAlias = (
    Winograd | PrecomputeFactors | PermuteAxes | GatherOverTaps | ExtractCommonStage
)

REWRITES: tuple[type[Rewrite], ...] = get_args(Rewrite)
"""All of them; a new rewrite is added to `Rewrite`, and where `sketches.forms` offers it."""


class HasRewrite(Protocol):
    """What a rewrite is."""

    @property
    def label(self) -> str:
        """What it is called in the name of a sketch."""
        ...

    def rewrite(self, workload: Workload) -> Workload:
        """`workload` (in normal form) rewritten, in normal form, with the same inputs and outputs.
        ScheduleError where the structure does not fit or the error is not allowed."""
        ...

    def stated_error(self, workload: Workload) -> float:
        """The proven bound on the relative error, in the unit of `Workload.allowed_error`."""
        ...


__all__ = [
    "REWRITES", "ExtractCommonStage", "GatherOverTaps", "HasRewrite", "PermuteAxes",
    "PrecomputeFactors", "Rewrite", "Winograd",
]  # fmt: skip
