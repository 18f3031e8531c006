"""The options of a tuning run. This module loads no tuning code."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.tuner.session.report import Budget

REAL = "local"
"""The measurer that runs kernels on this machine. No other measurer needs the machine's probes."""

FLEET = "dask"
"""The measurer of jobs on the service's fleet, whose address is a setting of the service."""


@dataclass(frozen=True, slots=True)
class TuneOptions:
    budget: Budget = field(default_factory=Budget)
    strategy: str = "annealing"
    seed: int = 0
    measurer: str = REAL
    fresh: bool = False
