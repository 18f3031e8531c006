"""Rewrites: the first steps of a trace, which change the expression and not the loops.

A primitive keeps every value up to the order of sums. A rewrite computes the same values with other
operations and so has an error of its own: `stated_error` bounds it, and a workload accepts only
rewrites whose error it allows (`Workload.allowed_error`; None allows none). A rewrite that only
reassociates sums and products states 0: it is legal for every workload if infinities, NaN and signs
of zeros are preserved, otherwise only for workloads that allow some error.
"""

from __future__ import annotations

from .common_stage import ExtractCommonStage
from .gather_over_taps import GatherOverTaps
from .permute_axes import PermuteAxes
from .precompute_factors import PrecomputeFactors
from .rewrite import Rewrite
from .winograd import Winograd

REWRITES: tuple[type[Rewrite], ...] = (
    Winograd, PrecomputeFactors, PermuteAxes, GatherOverTaps, ExtractCommonStage,
)  # fmt: skip
"""All of them; a new rewrite is added here, and where `sketches.forms` offers it."""

__all__ = [
    "REWRITES", "ExtractCommonStage", "GatherOverTaps", "PermuteAxes", "PrecomputeFactors",
    "Rewrite", "Winograd",
]  # fmt: skip
