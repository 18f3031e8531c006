"""Feature vectors of candidates, computed for thousands of settings without lowering any.

The columns in `FEATURES` mean the same for every workload: log2 of the time of each component of
the prior (clamped from below to a millionth of the longest component), log2(1 + x) of each count,
and the load imbalance of the threads. The columns after them are the number of the sketch and, for
each knob with several values, the position of its value in the knob's list scaled to 0..1. Sketches
with fewer knobs are padded with -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.schedules.arrays import BoolArray, FloatArray, IntArray
from tilewright.schedules.space import ScheduleSpace

from .analysis import Analysis
from .base import BorrowedSample, Sample, SettingFeatures
from .counts.table import COUNTS
from .prior import COMPONENTS, Corrects, Prior

FEATURES = (*COMPONENTS, *COUNTS, "imbalance")

FeatureArray = npt.NDArray[np.float32]

FAILED_FACTOR = 2.0
"""A candidate that failed is assigned the run time of the slowest successful one times this
factor."""


@dataclass(frozen=True, slots=True)
class Measured:
    """N samples in the form that models learn from. `log2_secs` (N,): measured run times; a failed
    sample is assigned `FAILED_FACTOR` times the run time of the slowest successful one. `ran` (N,):
    whether the measurement succeeded. `sketch` (N,): numbers of the sketches. `prior` (N,): log2
    seconds predicted by the prior. `settings`: one row per sample. `features` (N, F).
    Borrowed samples follow the others; their `log2_secs` is the uncorrected prior plus their error.
    `source`, `work` and `machine` (N,): numbers of the task, of its workload and of its machine, 0
    for samples of this run. `similarity` (N,): 1 for samples of this workload."""

    log2_secs: FloatArray
    ran: BoolArray
    sketch: IntArray
    settings: list[IntArray]
    prior: FloatArray
    features: FeatureArray
    source: IntArray
    work: IntArray
    machine: IntArray
    similarity: FloatArray

    @property
    def own(self) -> BoolArray:
        """Whether a sample is of this space and ran successfully, shape (N,)."""
        return np.asarray(self.ran & (self.source == 0))


MOST_KEPT = 1 << 14
"""Number of settings of a sketch from which on their features are dropped, a few megabytes."""


class _KeptSetting(NamedTuple):
    """The features (F,) of one setting, its prior, and log2 of the uncorrected prior."""

    features: FeatureArray
    log2_prior: float
    log2_plain: float


class Featuriser:
    """Computes features and prior of the candidates of one space from the same analysis. The prior
    is the prediction with the `correction`, if any.

    Rows are kept: an analysis takes milliseconds even for one setting, and a search describes a
    setting in its pool, as a neighbour of the best, and after each fit if it was measured.
    """

    def __init__(self, space: ScheduleSpace, correction: Corrects | None = None) -> None:
        self.space = space
        self.prior = Prior(space, correction=correction)
        sizes = [[len(knob.values) for knob in sketch.knobs] for sketch in space.sketches]
        self._choices = [[k for k, size in enumerate(own) if size > 1] for own in sizes]
        self._columns = len(FEATURES) + 1 + max(map(len, self._choices))
        self._kept = [dict[bytes, _KeptSetting]() for _ in space.sketches]

    def __call__(self, sketch: int, settings: IntArray) -> SettingFeatures:
        """Return features and prior of `settings` (P, J) of sketch number `sketch`."""
        return self._described(sketch, settings)[0]

    def _described(self, sketch: int, settings: IntArray) -> tuple[SettingFeatures, FloatArray]:
        """Return features and prior of `settings`, and log2 of the uncorrected prior (P,)."""
        kept, keys = self._kept[sketch], [row.tobytes() for row in np.asarray(settings, np.int64)]
        if len(kept) > MOST_KEPT:
            kept.clear()
        new = [n for n, key in enumerate(keys) if key not in kept]
        if len(new) == len(keys):
            return self._analysed(sketch, settings, keys)
        if new:
            self._analysed(sketch, settings[new], [keys[n] for n in new])
        features, prior, plain = zip(*(kept[key] for key in keys), strict=True)
        described = SettingFeatures(sketch, settings, np.stack(features), np.array(prior))
        return described, np.array(plain)

    def _analysed(
        self, sketch: int, settings: IntArray, keys: Sequence[bytes]
    ) -> tuple[SettingFeatures, FloatArray]:
        """Return what `_described` returns, and keep it. `keys` are the bytes of each setting."""
        analysis = self.prior.analyse(sketch, settings)
        table = np.full((self._columns, len(settings)), -1.0, np.float32)
        for row, values in zip(table, self._rows(sketch, settings, analysis), strict=False):
            row[:] = values
        features = np.ascontiguousarray(table.T)
        prior, plain = self.prior.log2_of(analysis), np.asarray(np.log2(analysis.secs))
        rows = map(_KeptSetting, features, prior.tolist(), plain.tolist())
        self._kept[sketch].update(zip(keys, rows, strict=True))
        return SettingFeatures(sketch, settings, features, prior), plain

    def samples(
        self, samples: Sequence[Sample], borrowed: Sequence[BorrowedSample] = ()
    ) -> Measured | None:
        """Return the data of all `samples` and `borrowed` samples in their order, or None if no
        sample ran successfully and none is borrowed."""
        timed = [s.run_secs for s in samples if s.run_secs is not None]
        if not timed and not borrowed:
            return None
        if not timed:
            samples = ()
        candidates = [s.candidate for s in samples] + [b.candidate for b in borrowed]
        sketch = np.array([candidate.sketch for candidate in candidates], np.int64)
        settings = [np.array(candidate.setting, np.int64) for candidate in candidates]
        prior, plain = np.empty((2, len(candidates)))
        features = np.empty((len(candidates), self._columns), np.float32)
        for number in np.unique(sketch):
            rows = np.flatnonzero(sketch == number)
            described, plain[rows] = self._described(
                int(number), np.stack([settings[r] for r in rows])
            )
            prior[rows], features[rows] = described.log2_prior, described.features
        failed = FAILED_FACTOR * max(timed, default=1.0)
        own = np.log2([failed if s.run_secs is None else s.run_secs for s in samples])
        ran = np.array([s.run_secs is not None for s in samples] + [True] * len(borrowed), np.bool_)
        tasks = np.array([(b.source, b.work, b.machine) for b in borrowed], np.int64)
        tasks = np.concatenate([np.zeros((len(samples), 3), np.int64), tasks.reshape(-1, 3)])
        source, work, machine = tasks.T
        errors = np.array([b.log2_error for b in borrowed])
        if timed:
            errors = _levelled(
                errors, source[len(samples) :], (own - plain[: len(own)])[ran[: len(own)]]
            )
        return Measured(
            np.concatenate([own, plain[len(own) :] + errors]),
            ran,
            sketch,
            settings,
            prior,
            features,
            source,
            work,
            machine,
            np.array([1.0] * len(samples) + [b.similarity for b in borrowed]),
        )

    def _rows(
        self, sketch: int, settings: IntArray, analysis: Analysis
    ) -> list[npt.NDArray[np.floating] | int]:
        """Return the feature columns: the values of `FEATURES`, the sketch number and the knob
        positions, each (P,) or a scalar."""
        counted = [np.log2(1.0 + analysis.columns[name]) for name in COUNTS]
        longest = analysis.components.max(axis=0)
        components = np.log2(np.maximum(analysis.components, 1e-6 * longest))
        knobs = self.space.sketches[sketch].knobs
        places = [settings[:, k] / (len(knobs[k].values) - 1) for k in self._choices[sketch]]
        return [*components, *counted, analysis.imbalance, sketch, *places]


def _levelled(errors: FloatArray, source: IntArray, own: FloatArray) -> FloatArray:
    """Return the borrowed `errors`, shifted by one offset per `source` so that their median is the
    median of the `own` errors: only differences between candidates are borrowed."""
    result = errors.copy()
    for number in np.unique(source):
        rows = source == number
        result[rows] += np.median(own) - np.median(errors[rows])
    return result
