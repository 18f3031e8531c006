"""Features of candidates, thousands at a time, without lowering.

`FEATURES` mean the same for every workload: log2 of each component of the prior, a millionth of the
largest at least; log2 of one more than each count of a setting; the load imbalance of threads. Then
come the number of the sketch, and for each knob with a choice the position, 0..1, of its value in
the sketch's list, or -1 where a sketch has fewer of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tilewright.schedules.arrays import BoolArray, FloatArray, IntArray
from tilewright.schedules.space import ScheduleSpace

from .base import Sample, SettingFeatures
from .counts.table import COUNTS
from .prior import COMPONENTS, Analysis, Prior

FEATURES = (*COMPONENTS, *COUNTS, "imbalance")

FeatureArray = npt.NDArray[np.float32]

FAILED_FACTOR = 2.0
"""A candidate that failed is learned as this factor slower than the slowest that ran."""


@dataclass(frozen=True, slots=True)
class Measured:
    """N samples as models read them. `log2_secs` (N,): one that failed is as slow as the slowest
    that ran, and then `FAILED_FACTOR` times; `ran` (N,) tells which are real. `sketch` and `prior`
    (N,), `settings` one row each, `features` (N, F)."""

    log2_secs: FloatArray
    ran: BoolArray
    sketch: IntArray
    settings: list[IntArray]
    prior: FloatArray
    features: FeatureArray


class Featuriser:
    """Features and prior of the candidates of one space, from one analysis."""

    def __init__(self, space: ScheduleSpace) -> None:
        self.space = space
        self.prior = Prior(space)
        sizes = [[len(knob.values) for knob in sketch.knobs] for sketch in space.sketches]
        self._choices = [[k for k, size in enumerate(own) if size > 1] for own in sizes]
        self._columns = len(FEATURES) + 1 + max(map(len, self._choices))

    def __call__(self, sketch: int, settings: IntArray) -> SettingFeatures:
        """That of `settings` (P, J) of sketch number `sketch`."""
        analysis = self.prior.analyse(sketch, settings)
        table = np.full((self._columns, len(settings)), -1.0, np.float32)
        for row, values in zip(table, self._rows(sketch, settings, analysis), strict=False):
            row[:] = values
        features = np.ascontiguousarray(table.T)
        return SettingFeatures(sketch, settings, features, np.log2(analysis.secs))

    def samples(self, samples: Sequence[Sample]) -> Measured | None:
        """All `samples`, in their order; None where none ran."""
        timed = [s.run_secs for s in samples if s.run_secs is not None]
        if not timed:
            return None
        failed = FAILED_FACTOR * max(timed)
        sketch = np.array([s.candidate.sketch for s in samples], np.int64)
        settings = [np.array(s.candidate.setting, np.int64) for s in samples]
        prior = np.empty(len(samples))
        features = np.empty((len(samples), self._columns), np.float32)
        for number in np.unique(sketch):
            rows = np.flatnonzero(sketch == number)
            described = self(int(number), np.stack([settings[r] for r in rows]))
            prior[rows], features[rows] = described.log2_prior, described.features
        return Measured(
            np.log2([failed if s.run_secs is None else s.run_secs for s in samples]),
            np.array([s.run_secs is not None for s in samples]),
            sketch,
            settings,
            prior,
            features,
        )

    def _rows(
        self, sketch: int, settings: IntArray, analysis: Analysis
    ) -> list[npt.NDArray[np.floating] | int]:
        """Values of `FEATURES`, the sketch and its knobs, each (P,)."""
        counted = [np.log2(1.0 + analysis.columns[name]) for name in COUNTS]
        longest = analysis.components.max(axis=0)
        components = np.log2(np.maximum(analysis.components, 1e-6 * longest))
        knobs = self.space.sketches[sketch].knobs
        places = [settings[:, k] / (len(knobs[k].values) - 1) for k in self._choices[sketch]]
        return [*components, *counted, analysis.imbalance, sketch, *places]
