"""The model that a database learned from earlier runs, as a session uses it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np

from tilewright.costmodel.correction import FEATURES, Correction, columns_of
from tilewright.costmodel.forest import ModelError
from tilewright.costmodel.prior import Prior
from tilewright.costmodel.training import TrialGroup
from tilewright.schedules.named_setting import NamedSetting, candidate_of
from tilewright.schedules.record import TuningRecord
from tilewright.schedules.related import StoredModel
from tilewright.schedules.space import ScheduleSpace
from tilewright.schedules.workload.structure import structure_of

ELSEWHERE_SHARE = 0.5
"""Share of the correction of a model of another machine, for a target without a model."""


@dataclass(frozen=True, slots=True)
class ModelInUse:
    """`correction`: the correction of the prior, or None. `note`: one line on why a stored model is
    not used, or "". `key` and `quality`: key of the stored model, and what it was trained on.
    `origin`: a name of the machine if the model is of another one."""

    correction: Correction | None = None
    note: str = ""
    key: str = ""
    quality: dict[str, Any] = field(default_factory=dict)
    origin: str = ""

    @property
    def summary(self) -> str:
        """What the model does, as a line for users; "" if there is none, or it does not help."""
        if self.note:
            return f"the model of the database is not used: {self.note}"
        if self.correction is None:
            return ""
        trials = self.quality.get("samples")
        where = f" on {self.origin}" if self.origin else ""
        share = self.correction.share
        return (
            f"corrected by {share:.0%} of what {trials} trials{where} taught the database's model"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the model as it is reported: empty if none is stored."""
        if not self.key:
            return {}
        share = 0.0 if self.correction is None else self.correction.share
        return {
            "key": self.key,
            "share": share,
            "note": self.note,
            "quality": self.quality,
            "origin": self.origin,
        }


def model_in_use(stored: StoredModel | None) -> ModelInUse:
    """Return the usable part of a stored model. A model that this version cannot use, or that did
    not help on workloads left out of its training, corrects nothing. A model of another machine
    corrects `ELSEWHERE_SHARE` of what it corrects there."""
    if stored is None:
        return ModelInUse()
    try:
        correction = Correction.from_document(stored.document)
    except ModelError as error:
        return ModelInUse(None, str(error), stored.key, stored.quality, stored.origin)
    if stored.origin:
        correction = replace(correction, share=ELSEWHERE_SHARE * correction.share)
    used = correction if correction.share else None
    return ModelInUse(used, "", stored.key, stored.quality, stored.origin)


def disagreement(records: Sequence[TuningRecord]) -> float:
    """Return how much repeated measurements of one trace differ: the median over the traces that
    were measured repeatedly of the ratio of the largest and the smallest time, at least 1."""
    times: dict[bytes, list[float]] = {}
    for record in records:
        if record.result.run_secs_estimate is not None:
            times.setdefault(record.trace_key, []).append(record.result.run_secs_estimate)
    return median([max(t) / min(t) for t in times.values() if len(t) > 1] or [1.0])


def training_group(
    space: ScheduleSpace, records: Sequence[TuningRecord], weight: float, origin: str = ""
) -> TrialGroup | None:
    """Return the successful `records` of the workload and target of `space`, as input of training.
    Each setting counts once. Records whose setting `space` does not have are left out; return None
    if none is left."""
    found: dict[Any, float] = {}
    for record in records:
        secs = record.result.run_secs_estimate
        if record.setting is None or secs is None:
            continue
        candidate = candidate_of(space, NamedSetting.from_json(record.setting))
        if candidate is not None:
            found[candidate] = min(secs, found.get(candidate, secs))
    if not found:
        return None
    prior, candidates = Prior(space), list(found)
    columns = np.empty((len(FEATURES), len(found)), np.float32)
    log2_prior = np.empty(len(found))
    sketches = np.array([candidate.sketch for candidate in candidates])
    for sketch in np.unique(sketches):
        rows = np.flatnonzero(sketches == sketch)
        settings = np.array([candidates[row].setting for row in rows], np.int64)
        analysis = prior.analyse(int(sketch), settings)
        columns[:, rows] = columns_of(analysis)
        log2_prior[rows] = np.log2(analysis.secs)
    family = structure_of(space.workload).key
    return TrialGroup(family, columns, log2_prior, np.log2(list(found.values())), weight, origin)
