"""The result of the prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.schedules.arrays import FloatArray, IntArray

from .counts.table import Counts


@dataclass(frozen=True, slots=True)
class Analysis:
    """Result of the prior for P settings of one sketch.

    `columns`: the counts. `components` (C, P) float32: time of each of the C `prior.COMPONENTS` in
    seconds, before overlap. `imbalance` (P,): time of the most loaded thread relative to the mean,
    at least 1. `secs` (P,): predicted time of a call.
    """

    columns: Counts
    components: npt.NDArray[np.float32]
    imbalance: FloatArray
    secs: FloatArray

    def at(self, places: IntArray) -> Analysis:
        """Return the analysis of the settings at `places` (Q,), in this order."""
        columns = {name: column[places] for name, column in self.columns.items()}
        components = self.components[:, places]
        return Analysis(columns, components, self.imbalance[places], self.secs[places])
