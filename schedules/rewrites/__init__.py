"""Rewrites: the first steps of a trace, which change the expression and not the loops.

A primitive preserves every value up to the order of sums. A rewrite computes the same values with
other operations and so has an additional error. `stated_error` bounds this error, and a workload
accepts only rewrites whose error it allows (`Workload.allowed_error`; None allows none). The stated
error is 0 for a rewrite that only reassociates sums and products. Such a rewrite is legal for every
workload if infinities, NaN and signs of zeros are preserved, otherwise only for workloads that
allow some error.
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
"""All rewrites. A new rewrite is added here and in `sketches.forms`, which offers it to the
search."""

__all__ = [
    "REWRITES", "ExtractCommonStage", "GatherOverTaps", "PermuteAxes", "PrecomputeFactors",
    "Rewrite", "Winograd",
]  # fmt: skip
