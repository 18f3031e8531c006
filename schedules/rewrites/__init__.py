"""Rewrites: the first steps of a trace, which change the expression and not the loops.

A primitive keeps every value as it is, up to the order of sums. A rewrite computes the same in
other operations, so its error is another one: `stated_error` bounds it, and a workload takes only
rewrites whose error it allows (`Workload.allowed_error`; None allows none). One that does no more
than regroup sums and products states 0: it is always allowed where infinities, NaN and the signs of
zeros come out as they are written, and where they may not, if any error is.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

from ..workload.workload import Workload
from .order import AxisLast
from .product import Beforehand
from .share import Share
from .taps import OverTaps
from .winograd import Winograd

Rewrite: TypeAlias = Winograd | Beforehand | AxisLast | OverTaps | Share

REWRITES: tuple[type[Rewrite], ...] = (Winograd, Beforehand, AxisLast, OverTaps, Share)
"""All of them; a new rewrite is added here, in `Rewrite`, and where `rules.rewriting` offers it."""


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
    "REWRITES", "AxisLast", "Beforehand", "HasRewrite", "OverTaps", "Rewrite", "Share", "Winograd",
]  # fmt: skip
